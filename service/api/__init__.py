"""HTTP: the only folder that imports FastAPI."""
