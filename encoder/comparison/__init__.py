"""Two texts side by side: passages, aligned blocks, sections, relation. Nothing is encoded here."""
