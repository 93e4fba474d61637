"""The routes of feedback, and what they take and answer."""
