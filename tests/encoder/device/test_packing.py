"""Packed calls: within their budget, of few shapes, and every token where it belongs."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from encoder.device.packing import (
    BlockPacking,
    document_calls,
    pad_documents,
    pad_rows,
    padded_blocks,
    power_of_two_from,
)

PACKING = BlockPacking(
    batch_tokens=256, block_length=64, before=(101,), after=(102,), padding_token=0
)
ONE_A_CALL = replace(PACKING, batch_tokens=0)
PROMPTED = replace(PACKING, block_length=80, before=(101, 7, 8), after=(9, 102))
OPEN = replace(PACKING, before=(), after=())  # as a static model reads

blocks_of_text = st.lists(st.lists(st.integers(5, 30_000), max_size=62), min_size=1, max_size=40)


@given(blocks_of_text)
def test_every_block_is_in_one_call_within_the_budget(blocks: list[list[int]]) -> None:
    calls = list(PACKING.calls(blocks))
    assert sorted(row for rows in calls for row in rows) == list(range(len(blocks)))
    for rows in calls:
        ids, _ = PACKING.pad([blocks[row] for row in rows])
        assert ids.size <= PACKING.batch_tokens
        assert ids.shape[0] & (ids.shape[0] - 1) == 0
        assert ids.shape[1] in (16, 32, 48, 64)


@given(blocks_of_text, st.sampled_from([PACKING, ONE_A_CALL, PROMPTED, OPEN]))
def test_padding_keeps_every_block(blocks: list[list[int]], packing: BlockPacking) -> None:
    ids, mask = packing.pad(blocks)
    assert ids.shape == mask.shape
    for row, block in enumerate(blocks):
        read = [*packing.before, *block, *packing.after]
        end = len(read)
        assert ids[row, :end].tolist() == read
        assert not ids[row, end:].any()
        assert mask[row].tolist() == [1] * end + [0] * (ids.shape[1] - end)
    assert not ids[len(blocks) :].any()
    assert not mask[len(blocks) :].any()


def test_the_budget_of_a_call() -> None:
    blocks = [[7] * 5, [7] * 60, [7]]
    assert list(ONE_A_CALL.calls(blocks)) == [[0], [1], [2]]  # without one
    assert [ONE_A_CALL.pad([block])[0].shape for block in blocks] == [(1, 7), (1, 62), (1, 3)]
    assert PACKING.most_rows(46) == 4  # five would fit, but eight rows would not
    assert PACKING.pad([[7] * 46] * 4)[0].shape == (4, 48)
    small = replace(PACKING, batch_tokens=32)
    assert list(small.calls([[7] * 62] * 2)) == [[0], [1]]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 512))
def test_every_document_is_in_one_call(sizes: list[int], budget: int) -> None:
    calls = list(document_calls(sizes, 48, budget))
    assert sorted(row for rows in calls for row in rows) == list(range(len(sizes)))
    for rows in calls:
        padded = padded_blocks(max(sizes[row] for row in rows), 48)
        assert len(rows) == 1 or power_of_two_from(len(rows)) * padded <= budget


def test_documents_are_padded_with_blocks_that_are_masked() -> None:
    documents = [np.full((size, 4), size, dtype=np.float32) for size in (3, 1, 5)]
    vectors, mask = pad_documents(documents, 1024)
    assert vectors.shape == (4, 8, 4)
    assert mask.sum(axis=1).tolist() == [3, 1, 5, 1]
    for row, document in enumerate(documents):
        assert np.array_equal(vectors[row][mask[row] == 1], document)
    assert not vectors[3].any()
    assert pad_documents(documents, 6)[0].shape == (4, 6, 4)  # no more than the model reads


def test_rows_are_padded_with_zeros() -> None:
    padded = pad_rows(np.ones((3, 2), dtype=np.float32))
    assert padded.tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]
