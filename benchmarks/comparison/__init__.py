"""Encoders side by side: results of `longmatch bench models` among those of the repository."""
