"""Feedback: what users say of matches, durable."""
