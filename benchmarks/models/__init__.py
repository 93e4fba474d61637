"""Experiments on models: encoders trained, tuned and measured under the same conditions."""
