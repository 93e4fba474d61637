"""Words and titles as terms: candidates by FTS5, scores by cosine."""
