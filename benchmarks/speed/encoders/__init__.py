"""Encoders under test, for `benchmarks.speed.encoder`."""
