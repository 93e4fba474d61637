"""A data directory on the disk: open, lock, swap, verify, back up."""
