"""Comparing encoders: every model trained from the same start, data and budget, and measured."""
