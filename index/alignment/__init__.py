"""The stored blocks of every document in the alignment space of the collection."""
