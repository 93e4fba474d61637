"""Which sentence blocks are worth reading: quality by the share of a document that is read."""
