"""Checkpoints in the evaluations of others: MTEB and BEIR."""
