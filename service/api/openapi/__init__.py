"""The OpenAPI document: what it says beyond what FastAPI derives from the routes."""
