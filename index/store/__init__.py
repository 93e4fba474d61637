"""The durable truth: documents, vectors, metadata, and the sequence of changes."""
