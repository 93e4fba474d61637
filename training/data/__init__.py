"""What a training step reads, in NumPy: corpora, splits, samplers; folders of corpora."""
