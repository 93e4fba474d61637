"""Documents: stored, listed, exported, deleted."""
