"""Uploads that are indexed in the background: what is known of them, and who says what runs."""
