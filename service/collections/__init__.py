"""Collections: created, opened, changed, removed."""
