"""Which sentence blocks of a document the Transformer encodes, chosen by their words."""
