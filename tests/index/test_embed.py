import json
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import MAX_BLOCKS, MIN_SAMPLE, fit_space, join_aligned
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index import embed
from index.errors import CorpusError
from index.progress import SilentProgress


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint: Path) -> OnnxEncoder:
    return OnnxEncoder(load_checkpoint(tiny_checkpoint))


def test_vectors_in_the_order_of_the_corpus(encoder: OnnxEncoder, tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    texts = ["One text.", "Another text, somewhat longer.", "word. " * 2_000]
    corpus.write_text(
        "".join(json.dumps({"id": f"ü{n}", "text": t}) + "\n" for n, t in enumerate(texts)) + "{\n"
    )
    embedded = embed.embed_corpus(corpus, encoder, SilentProgress())
    expected = encoder.encode([encoder.read(t) for t in texts]).document_vectors
    assert embedded.ids == ("ü0", "ü1", "ü2")
    assert embedded.skipped == 1
    assert np.array_equal(embedded.vectors, expected)
    assert embedded.tokens_read.tolist()[:2] == embedded.tokens.tolist()[:2]
    assert embedded.tokens_read[2] < embedded.tokens[2] == 4_000
    file = tmp_path / "v.npz"
    embed.write_embedded_corpus(file, embedded)
    with np.load(file) as arrays:
        assert set(arrays) == {"ids", "vectors", "tokens", "tokens_read"}
        assert arrays["vectors"].dtype == np.float32
        assert arrays["vectors"].shape == (3, 32)
    again = embed.read_embedded_corpus(file)
    assert again.ids == embedded.ids
    assert np.array_equal(again.vectors, embedded.vectors)
    assert again.aligned is None
    with pytest.raises(CorpusError, match=r"holds no block vectors.*`longmatch embed --blocks`"):
        embed.read_aligned_corpus(file)


def test_aligned_blocks_are_read_as_they_were_written(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    sizes = (3, 1, MAX_BLOCKS + 20)
    documents = [random.normal(size=(size, 24)).astype(np.float32) for size in sizes]
    space = fit_space(random.normal(size=(MIN_SAMPLE, 24)).astype(np.float32), dimension=8)
    aligned = join_aligned(space, [space.project(document) for document in documents])
    tokens = np.ones(3, dtype=np.int64)
    embedded = embed.EmbeddedCorpus(
        ("a", "b", "c"), np.eye(3, dtype=np.float32), tokens, tokens, 0, aligned
    )
    file = tmp_path / "v.npz"
    embed.write_embedded_corpus(file, embedded)
    again = embed.read_aligned_corpus(file).aligned
    assert again is not None
    assert [len(blocks) for blocks in again] == [3, 1, MAX_BLOCKS]
    for written, read in zip(aligned, again, strict=True):
        for name in ("codes", "scales", "hubness"):
            np.testing.assert_array_equal(getattr(read, name), getattr(written, name))
    projected = (each.project(documents[0]) for each in (space, again.space))
    np.testing.assert_array_equal(*(blocks.hubness for blocks in projected))


def test_a_corpus_without_a_document_is_an_error(encoder: OnnxEncoder, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("{}\n")
    with pytest.raises(CorpusError, match="no document"):
        embed.embed_corpus(tmp_path / "c.jsonl", encoder, SilentProgress())


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04broken"])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v.npz").write_bytes(content)
    with pytest.raises(CorpusError, match=r"v\.npz"):
        embed.read_embedded_corpus(tmp_path / "v.npz")


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", ids=np.array(["a"]))
    with pytest.raises(CorpusError, match="vectors"):
        embed.read_embedded_corpus(tmp_path / "v.npz")
