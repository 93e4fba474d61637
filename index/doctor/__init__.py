"""Examine and repair a data directory."""
