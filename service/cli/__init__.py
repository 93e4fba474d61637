"""The commands of `longmatch`, one file for each kind of work."""
