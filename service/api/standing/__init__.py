"""The routes of standing queries and of their events."""
