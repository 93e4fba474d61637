"""What was fitted to a corpus joins the document vector, and comes back from disk as it was."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.adapter import (
    FORMAT,
    Adapter,
    adapter_vocabulary,
    format_adapter,
    open_adaptation,
    parse_adapter,
    vector_space,
)
from encoder.checkpoint import load_checkpoint
from encoder.errors import AdapterError
from encoder.onnx_encoder import OnnxEncoder
from encoder.terms.term_table import Terms, count_words, quantise_term_table
from encoder.terms.title_matcher import match_token_titles
from encoder.tokenizer import BlockTokenizer


def adapter_of(rows: list[int], width: int = 3, base: str = "b" * 64) -> Adapter:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(len(rows), width)).astype(np.float32)
    weights = np.linspace(1.0, 2.0, len(rows), dtype=np.float32)
    return Adapter(
        base=base, buckets=8, rows=np.array(rows, dtype=np.int64),
        table=quantise_term_table(weights, vectors), weight=0.6, documents=12,
    )  # fmt: skip


def terms_of(counts: dict[int, int]) -> Terms:
    rows = sorted(counts)
    return Terms(np.array(rows), np.array([counts[row] for row in rows], dtype=np.float32))


def unit(*components: float) -> np.ndarray:
    vector = np.array(components, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def test_the_cosine_is_the_weighted_mean_of_both_cosines() -> None:
    adapter = adapter_of([2, 5, 11])
    vectors = [unit(1, 2), unit(3, -1)]
    terms = [terms_of({2: 3, 5: 1}), terms_of({5: 2, 11: 9})]
    first, second = (adapter.adapt(v, t) for v, t in zip(vectors, terms, strict=True))
    features = [adapter.table.features(t) for t in (terms_of({0: 3, 1: 1}), terms_of({1: 2, 2: 9}))]
    of_words = features[0] @ features[1] / np.prod([np.linalg.norm(f) for f in features])
    assert first @ second == pytest.approx(0.4 * vectors[0] @ vectors[1] + 0.6 * of_words, abs=1e-6)
    assert first.dtype == np.float32
    assert first.shape == (5,)
    assert np.linalg.norm(first) == pytest.approx(1.0, abs=1e-6)


def test_unknown_terms_change_nothing() -> None:
    adapter = adapter_of([2, 5, 11])
    known = adapter.adapt(unit(1, 2), terms_of({5: 2, 11: 1}))
    more = adapter.adapt(unit(1, 2), terms_of({0: 7, 5: 2, 8: 1, 11: 1, 30_000: 4}))
    np.testing.assert_array_equal(known, more)
    for counts in ({}, {0: 4, 3: 1, 99: 2}):
        alone = adapter.adapt(unit(1, 2), terms_of(counts))
        np.testing.assert_array_equal(alone, [*unit(1, 2), 0, 0, 0])


def test_it_comes_back_from_disk() -> None:
    adapter = replace(adapter_of([2, 5, 11]), titles=match_token_titles([[1, 2], [7]]))
    again = parse_adapter(format_adapter(adapter), "adapter.npz")
    assert again.digest == adapter.digest
    assert again.fingerprint == adapter.fingerprint
    np.testing.assert_array_equal(again.titles.hashes, adapter.titles.hashes)
    np.testing.assert_array_equal(again.titles.lengths, adapter.titles.lengths)
    terms = terms_of({2: 1, 5: 4})
    np.testing.assert_array_equal(again.adapt(unit(1, 2), terms), adapter.adapt(unit(1, 2), terms))


def test_the_digest_is_of_all_that_is_in_it() -> None:
    adapter = adapter_of([2, 5, 11])
    others = [
        *(replace(adapter, base="c" * 64), replace(adapter, buckets=9)),
        *(replace(adapter, weight=0.5), replace(adapter, documents=13), adapter_of([2, 5, 12])),
        adapter_of([2, 5, 11], width=4),
        replace(adapter, table=replace(adapter.table, weights=adapter.table.weights + 1)),
        replace(adapter, table=replace(adapter.table, vectors=-adapter.table.vectors)),
        replace(adapter, table=replace(adapter.table, scales=adapter.table.scales * 2)),
        replace(adapter, titles=match_token_titles([[1, 2]])),
        replace(adapter, titles=match_token_titles([[1, 3]])),
    ]
    assert len({item.fingerprint for item in (adapter, *others)}) == 1 + len(others)


@given(st.data())
def test_a_damaged_file_is_refused(data: st.DataObject) -> None:
    content = format_adapter(adapter_of([2, 5, 11]))
    place = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]
    for damaged in (flipped, content[:place], content + b"\0"):
        with pytest.raises(AdapterError, match=r"^data/adapter\.npz: is damaged"):
            parse_adapter(damaged, "data/adapter.npz")


def test_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("encoder.adapter.FORMAT", FORMAT + 1)
        content = format_adapter(adapter_of([2]))
    with pytest.raises(AdapterError, match=f"format {FORMAT + 1} is not {FORMAT}"):
        parse_adapter(content, "adapter.npz")


def test_an_encoder_adapts_what_it_encodes(tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    tokenizer = BlockTokenizer(checkpoint)
    documents = [tokenizer("Rivers carry stones to the sea."), tokenizer("Nothing of that.")]
    vocabulary = adapter_vocabulary(checkpoint)
    rows = count_words(vocabulary, tokenizer("rivers stones").blocks).rows
    adapter = replace(
        adapter_of(rows.tolist(), base=checkpoint.fingerprint), buckets=vocabulary.buckets
    )
    plain = OnnxEncoder(checkpoint, precision="fp32")
    adapted = OnnxEncoder(checkpoint, precision="fp32", adapter=adapter)
    assert (plain.dimension, adapted.dimension) == (32, 35)
    assert plain.fingerprint == checkpoint.fingerprint
    assert adapted.fingerprint == adapter.fingerprint
    space = vector_space(checkpoint, adapter)
    assert (space.fingerprint, space.dimension) == (adapted.fingerprint, adapted.dimension)
    found = adapted.encode(documents).document_vectors
    base = plain.encode(documents).document_vectors
    for document, vector, before in zip(documents, found, base, strict=True):
        expected = adapter.adapt(before, count_words(vocabulary, document.blocks))
        np.testing.assert_array_equal(vector, expected)
    assert np.linalg.norm(found[0, 32:]) == pytest.approx(0.6**0.5, abs=1e-6)
    assert not found[1, 32:].any()
    adapted.warm_up()


def test_an_adapter_of_another_checkpoint_is_refused(tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    with pytest.raises(AdapterError, match=f"for checkpoint {'b' * 12}, not for"):
        open_adaptation(checkpoint, adapter_of([2]))
    with pytest.raises(AdapterError, match="use that checkpoint"):
        OnnxEncoder(checkpoint, adapter=adapter_of([2]))


def test_words_are_counted_whole(tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    tokenizer, vocabulary = BlockTokenizer(checkpoint), adapter_vocabulary(checkpoint)

    def counts(text: str) -> dict[int, float]:
        found = count_words(vocabulary, tokenizer(text).blocks)
        assert (np.diff(found.rows) > 0).all()
        return dict(zip(found.rows.tolist(), found.counts.tolist(), strict=True))

    (feldspar,) = counts("feldspar")  # of several WordPieces
    (field,) = counts("field")
    assert feldspar >= checkpoint.model["vocabulary_size"] > field
    assert counts("field feldspar field, feldspar feldspar") == {
        feldspar: 3.0,
        field: 2.0,
        **counts(","),
    }
    assert counts("word " * 40 + "feldspar " * 9)[feldspar] == 9.0  # over several blocks
    piece = int(np.flatnonzero(vocabulary.continues)[0])  # a document may begin inside a word
    assert count_words(vocabulary, [[piece], [2000]]).counts.sum() == 1.0
