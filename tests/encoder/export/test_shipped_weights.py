"""The weights that ship are those that the shipped graphs were made of."""

import numpy as np

from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.export.create import load_model
from encoder.export.export import compute_golden_batch
from encoder.golden import read_golden_batch


def test_the_weights_give_the_vectors_that_the_graphs_are_compared_with() -> None:
    """`tests/contract/test_encoders.py` compares the graphs with the same golden batch."""
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    computed = compute_golden_batch(checkpoint, load_model(checkpoint))
    stored = read_golden_batch(checkpoint)
    assert computed.blocks == stored.blocks
    # Sums are rounded differently on other processors.
    assert np.abs(computed.block_vectors - stored.block_vectors).max() <= 1e-5
    assert np.abs(computed.document_vectors - stored.document_vectors).max() <= 1e-5
