"""Words and titles as terms: candidates by the heaviest of them, scores by cosine."""
