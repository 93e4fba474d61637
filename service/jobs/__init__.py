"""Uploads that are indexed in the background, and responses stored for Idempotency-Key."""
