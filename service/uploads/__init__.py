"""Uploads of JSON Lines, and the jobs that index them."""
