"""Threads that keep the index good while the service runs."""
