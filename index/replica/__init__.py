"""The local copy of a store in PostgreSQL, from which a process searches."""
