"""Commands that compare documents: two of them, or every two of a corpus."""
