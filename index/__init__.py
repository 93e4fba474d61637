"""Vectors and documents: corpora, the durable store, the vector index and the offline job."""
