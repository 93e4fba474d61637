"""A sentence model: an encoder that sentence-transformers saved, as `encoder.encoder.Encoder`."""
