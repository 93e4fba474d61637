"""The searchable copy of the vectors: the port, FAISS, generations, snapshots, recall, drift."""
