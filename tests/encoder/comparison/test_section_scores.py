"""Scores of sections and chunks by CoLDE: its graph against the model, cut as in training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from encoder.arrays import Float32
from encoder.checkpoint import load_checkpoint
from encoder.comparison.compare import compare_texts
from encoder.comparison.result import Section, Span
from encoder.comparison.sections import MAX_PAIRS, attended_blocks, blocks_of_sections
from encoder.comparison.text import ComparableText, prepare_text
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from tests.encoder.comparison.test_compare import PAIR
from training.export.create import load_model
from training.models.architecture import Sections
from training.models.colde import Colde

PART = "The river runs on, and the stones lie still. Music is heard in winter. "
LEFT = "\n\n".join(f"# Part {n}\n\n{PART * (n + 1)}" for n in range(3))
RIGHT = f"{PART * 2}\n\nA letter came by the engine. It was of the harbour and the bridge. {PART}"


@pytest.fixture(scope="module")
def encoder(tiny_colde: Path) -> OnnxEncoder:
    return OnnxEncoder(load_checkpoint(tiny_colde), precision="fp32", threads=1)


@pytest.fixture(scope="module")
def model(tiny_colde: Path) -> Colde:
    model = load_model(load_checkpoint(tiny_colde))
    assert isinstance(model, Colde)
    return model


@pytest.fixture(scope="module")
def left(encoder: OnnxEncoder) -> ComparableText:
    return read(encoder, LEFT)


@pytest.fixture(scope="module")
def right(encoder: OnnxEncoder) -> ComparableText:
    return read(encoder, RIGHT)


def read(encoder: OnnxEncoder, text: str) -> ComparableText:
    blocks = BlockTokenizer(encoder.checkpoint)(text)
    encoded = encoder.encode([blocks])
    offsets = np.array(blocks.offsets)
    vector, (vectors,) = encoded.document_vectors[0], encoded.block_vectors
    return prepare_text(text, vector, vectors, offsets, reader=encoder)


def by_the_model(model: Colde, text: ComparableText) -> Float32:
    """Section vectors of a document cut as in training: all sections in one padded batch."""
    places = blocks_of_sections(text.offsets, text.sections)
    parts = [torch.from_numpy(text.block_vectors[first:last]) for first, last in places]
    mask = pad_sequence([torch.ones(len(part)) for part in parts], batch_first=True)
    numbers = torch.arange(len(parts))
    sections = Sections(numbers, (numbers + 1) % len(parts))
    with torch.no_grad():
        found: Float32 = model.document_encoder(
            pad_sequence(parts, batch_first=True), mask, sections
        ).numpy()
    return found


def test_section_vectors_are_those_of_the_model(
    model: Colde, left: ComparableText, right: ComparableText
) -> None:
    assert (len(left.sections), len(right.sections)) == (3, 2)
    for text in (left, right):
        assert text.section_vectors is not None
        assert np.abs(text.section_vectors - by_the_model(model, text)).max() < 1e-4


def test_section_scores_are_their_products(
    encoder: OnnxEncoder, left: ComparableText, right: ComparableText
) -> None:
    found = compare_texts(left, right, PAIR, reader=encoder)
    assert found.section_scores_from == "section vectors"
    for row, ours in enumerate(left.section_vectors):
        for column, theirs in enumerate(right.section_vectors):
            product = sum(float(a) * float(b) for a, b in zip(ours, theirs, strict=True))
            assert found.section_scores[row, column] == pytest.approx(product, abs=1e-5)
    itself = compare_texts(left, left, PAIR, reader=encoder).section_scores
    assert np.diag(itself) == pytest.approx(1.0, abs=1e-5)
    without = compare_texts(left, replace(right, section_vectors=None), PAIR)
    assert without.section_scores_from == "block vectors"
    assert np.abs(without.section_scores - found.section_scores).max() > 1e-3
    assert without.attended_blocks is None


def test_attended_blocks_are_the_attention_of_the_model(
    encoder: OnnxEncoder, model: Colde, left: ComparableText, right: ComparableText
) -> None:
    """The other text is the next section, in both directions."""
    pairs = compare_texts(left, right, PAIR, reader=encoder).attended_blocks
    assert pairs is not None
    assert len(pairs) == len(left.offsets) * len(right.offsets)
    level, weights = model.document_encoder, []
    for item, other in ((left, right), (right, left)):
        own, following = (torch.from_numpy(t.block_vectors)[None] for t in (item, other))
        with torch.no_grad():
            queries = level.embed(own, torch.tensor([0]))
            keys = level.embed(following, torch.tensor([1]))
            heads = level.attention.weights(queries, keys, torch.ones(keys.shape[:2]))
        weights.append(heads[0].mean(0).numpy())
    row_of, column_of = (
        {tuple(place): row for row, place in enumerate(text.offsets.tolist())}
        for text in (left, right)
    )
    for pair in pairs:
        row, column = row_of[pair.left], column_of[pair.right]
        assert pair.left_attention == pytest.approx(weights[0][row, column], abs=1e-5)
        assert pair.right_attention == pytest.approx(weights[1][column, row], abs=1e-5)
        even = 1 / len(column_of), 1 / len(row_of)
        times = pair.left_attention / even[0], pair.right_attention / even[1]
        assert pair.times_average == pytest.approx(sum(times) / 2, abs=1e-5)
    strengths = [pair.times_average for pair in pairs]
    assert strengths == sorted(strengths, reverse=True)
    assert np.mean(strengths) == pytest.approx(1.0, abs=1e-5)


def test_of_many_pairs_the_best_are_kept(encoder: OnnxEncoder) -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(30, encoder.checkpoint.block_dimension)).astype(np.float32)
    offsets = np.stack([np.arange(30), np.arange(1, 31)], axis=1)
    pairs = attended_blocks(encoder, (vectors, offsets), (vectors[:20], offsets[:20]))
    assert pairs is not None
    assert len(pairs) == MAX_PAIRS < 30 * 20
    there = encoder.chunk_attention(vectors, vectors[:20])
    back = encoder.chunk_attention(vectors[:20], vectors)
    assert there is not None
    assert back is not None
    times = np.sort((there * 20 + back.T * 30).ravel() / 2)[::-1]
    assert [pair.times_average for pair in pairs] == pytest.approx(times[:MAX_PAIRS].tolist())


def test_a_section_has_the_blocks_that_begin_in_it() -> None:
    offsets = np.array([(0, 9), (10, 19), (20, 29), (30, 39)])
    sections = [Section(Span(*span), "") for span in ((0, 10), (10, 32), (32, 50))]
    assert blocks_of_sections(offsets, sections) == [(0, 1), (1, 4), (3, 4)]  # the last: reaches in
    unread = [Section(Span(*span), "") for span in ((0, 25), (25, 60), (60, 90), (90, 95))]
    assert blocks_of_sections(offsets, unread) == [(0, 3), (3, 4), (4, 4), (4, 4)]
    late = [Section(Span(0, 5), ""), Section(Span(5, 40), "")]
    assert blocks_of_sections(offsets + 3, late) == [(0, 1), (1, 4)]


def test_a_section_that_was_not_read_scores_0(encoder: OnnxEncoder) -> None:
    whole = read(encoder, LEFT)
    beginning = whole.block_vectors[:2], whole.offsets[:2]
    short = prepare_text(LEFT, whole.vector, *beginning, reader=encoder)
    scores = compare_texts(short, whole, PAIR, reader=encoder).section_scores
    assert np.abs(scores[0]).min() > 0
    assert not scores[-1].any()
