"""Bound calls on a CPU: buffers used again give what a plain call gives, also from many threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.device.bound_graph import KEPT_SHAPES, BoundGraph
from encoder.onnx_session import OpenedGraphs, open_graphs

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def graphs(checkpoint: Checkpoint) -> OpenedGraphs:
    return open_graphs(checkpoint, "fp32", ["cpu"], batch_tokens=256)


@pytest.fixture
def bound(graphs: OpenedGraphs, checkpoint: Checkpoint) -> BoundGraph:
    return BoundGraph(graphs.block, checkpoint.block_dimension, "cpu")


def inputs_of(graphs: OpenedGraphs, blocks: list[list[int]]) -> dict[str, np.ndarray]:
    ids, mask = graphs.packing.pad(blocks)
    return {"input_ids": ids, "attention_mask": mask}


def run(bound: BoundGraph, graphs: OpenedGraphs, blocks: list[list[int]]) -> Float32:
    vectors = np.full((len(blocks), bound.width), np.nan, dtype=np.float32)
    bound.run(inputs_of(graphs, blocks), vectors, range(len(blocks)))
    return vectors


def plain(graphs: OpenedGraphs, blocks: list[list[int]]) -> Float32:
    found: Float32 = graphs.block.run(None, inputs_of(graphs, blocks))[0][: len(blocks)]
    return found


def test_buffers_of_more_shapes_than_are_kept(bound: BoundGraph, graphs: OpenedGraphs) -> None:
    for count in [*range(1, KEPT_SHAPES + 6), 1, 2, 2]:
        blocks = [[10 + row, count] for row in range(count)]
        assert np.abs(run(bound, graphs, blocks) - plain(graphs, blocks)).max() <= TOLERANCE


def test_rows_are_written_where_they_belong(bound: BoundGraph, graphs: OpenedGraphs) -> None:
    blocks = [[7, 8], [9], [10, 11, 12]]
    vectors = np.zeros((5, bound.width), dtype=np.float32)
    bound.run(inputs_of(graphs, blocks), vectors, [4, 0, 2])
    assert np.abs(vectors[[4, 0, 2]] - plain(graphs, blocks)).max() <= TOLERANCE
    assert not vectors[[1, 3]].any()


def test_threads_do_not_mix_their_calls(bound: BoundGraph, graphs: OpenedGraphs) -> None:
    calls = [[[20 + n, 30 + row] for row in range(1 + n % 4)] for n in range(60)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda blocks: run(bound, graphs, blocks), calls))
    for vectors, blocks in zip(found, calls, strict=True):
        assert np.abs(vectors - plain(graphs, blocks)).max() <= TOLERANCE


def test_a_call_that_fails_leaves_its_lane(bound: BoundGraph, graphs: OpenedGraphs) -> None:
    beyond = 10**6  # no such token
    for _ in range(4):
        with pytest.raises(Exception, match=r"(?i)indices|out of"):
            run(bound, graphs, [[beyond]])
    blocks = [[7, 8, 9]]
    assert np.abs(run(bound, graphs, blocks) - plain(graphs, blocks)).max() <= TOLERANCE
