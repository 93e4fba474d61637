"""Threads that maintain the index while the service runs."""
