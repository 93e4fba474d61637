"""How good the matches, the probabilities and the explanations are."""
