"""Feedback: what users say of matches, durable and in a file of its own."""
