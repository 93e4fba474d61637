"""Two texts side by side: sections, passages, coverage, relation. Nothing is encoded here."""
