"""A map of the documents of a collection."""
