"""Readers: files, JSON Lines and BEIR folders to documents."""
