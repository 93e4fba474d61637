"""Pretraining: what its recipes have in common, and objectives of recurrent encoders alone."""
