"""The command `evaluate`."""
