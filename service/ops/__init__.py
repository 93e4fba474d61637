"""State, version, limits and metrics of the service."""
