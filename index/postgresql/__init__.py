"""A PostgreSQL as the database of the store."""
