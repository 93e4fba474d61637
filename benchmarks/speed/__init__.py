"""Speed of the encoder, the index and the offline jobs."""
