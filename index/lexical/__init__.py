"""Words and titles as terms: candidates by the top terms of a query, scores by cosine."""
