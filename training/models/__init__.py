"""Architectures in PyTorch, one file each. Nothing that serves imports this package."""
