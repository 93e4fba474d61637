"""Alignment: how well the sentence blocks of two documents match each other, block by block."""
