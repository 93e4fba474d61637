"""Quality of matches, probabilities, explanations and reranking."""
