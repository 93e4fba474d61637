"""How fast the encoder, the index and the offline jobs are."""
