"""The document store in PostgreSQL: documents, vectors and changes that many processes share."""
