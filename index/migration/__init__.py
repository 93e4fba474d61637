"""Documents are moved between a data directory and a PostgreSQL, with vectors and vector ids."""
