"""Text that many unrelated documents share, such as a licence: it counts for no match."""
