"""The map of a collection: every document a point, near those that resemble it."""
