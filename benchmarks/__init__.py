"""Benchmarks, one folder per question; see README.md."""
