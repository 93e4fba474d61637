"""Two texts side by side: passages, aligned blocks, sections, relation. No text is encoded here."""
