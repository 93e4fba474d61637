"""The tables of a training recipe."""
