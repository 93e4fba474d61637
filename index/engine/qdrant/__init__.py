"""A Qdrant server as the engine: for collections that outgrow the memory of one machine.

What is stored of a document is one point, whose id is the vector id:

document   its vector, by which it is found: int8 in memory, 16 bits on the disk
words      a sparse vector: the weight of each term, of unit norm, so that the product with the
           terms of a query is the lexical score
payload    its metadata, by which filters find it, and its aligned blocks, which are read of the
           best candidates as 8 bits a number: vectors of a point take many times as long to read

A generation is a collection of Qdrant with the weights and the space of one moment. Searches
reach it by an alias, which a rebuild switches to the next one.
"""
