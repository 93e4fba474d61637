"""Random operations, swaps and kills, checked against a model."""
