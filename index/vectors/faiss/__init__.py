"""Vectors in an IVF index of FAISS: the engine by default."""
