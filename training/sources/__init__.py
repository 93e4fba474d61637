"""Corpora with links, made of documents that were not written for training."""
