"""Documents that a recurrent encoder reads with its step graph."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.errors import CheckpointError
from encoder.onnx_encoder import OnnxEncoder, read_segments
from encoder.onnx_session import open_graphs
from tests.kit.towers import segment_vectors
from training.export.create import load_model
from training.models.ernie_doc import ErnieDoc

Array = NDArray[Any]
Blocks = list[list[int]]


@pytest.fixture(scope="module")
def checkpoint(tiny_ernie_doc: Path) -> Checkpoint:
    return load_checkpoint(tiny_ernie_doc)


@pytest.fixture(scope="module")
def encoder(checkpoint: Checkpoint) -> OnnxEncoder:
    return OnnxEncoder(checkpoint, precision="fp32", threads=2)


def blocks_of(*lengths: int, seed: int = 0) -> Blocks:
    random = np.random.default_rng(seed)
    return [random.integers(1_000, 8_000, length).tolist() for length in lengths]


@pytest.mark.parametrize("lengths", [(1,), (14, 3, 14, 9, 1), (14,) * 40], ids=len)
def test_the_graphs_compute_what_the_model_computes(
    checkpoint: Checkpoint, encoder: OnnxEncoder, lengths: tuple[int, ...]
) -> None:
    model = load_model(checkpoint)
    assert isinstance(model, ErnieDoc)
    blocks = blocks_of(*lengths)
    ids = torch.zeros(1, len(blocks), 16, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for place, block in enumerate(blocks):
        tokens = [checkpoint.start_token, *block, checkpoint.end_token]
        ids[0, place, : len(tokens)] = torch.tensor(tokens)
        mask[0, place, : len(tokens)] = 1
    with torch.no_grad():
        expected = segment_vectors(model, ids, mask)[0].numpy()
        document = model(ids, mask)[0].numpy()
    found = encoder.encode_blocks(blocks)
    assert np.abs(found - expected).max() <= 1e-4
    assert np.abs(encoder.encode_document(blocks, found) - document).max() <= 1e-4


def test_what_a_step_carries_does_not_grow_with_the_document(checkpoint: Checkpoint) -> None:
    session = open_graphs(checkpoint, "fp32", ["cpu"]).block
    sizes: set[int] = set()

    def step(inputs: Mapping[str, Array]) -> list[Array]:
        sizes.add(sum(array.nbytes for array in inputs.values()))
        return session.run(None, dict(inputs))

    read_segments(checkpoint, step, blocks_of(*[14] * 300))
    memory = 2 * 8 * 32 * 4 + 8 * 8  # layers, states, width, bytes; and the mask
    assert sizes == {2 * 16 * 8 + memory}


def test_what_cannot_be_read_is_refused(encoder: OnnxEncoder, tiny_checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="a segment of 17 tokens, special tokens included"):
        encoder.encode_blocks(blocks_of(3, 15))
    with pytest.raises(CheckpointError, match="reads each block by itself"):
        read_segments(load_checkpoint(tiny_checkpoint), lambda _: [], [[1]])
    assert encoder.encode_blocks([]).shape == (0, 32)
    with pytest.raises(ValueError, match="no block"):
        encoder.encode_document([], encoder.encode_blocks([]))
