import json
from pathlib import Path

import numpy as np
import pytest

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
        assert arrays["ids"].tolist() == list(embedded.ids)
        assert np.array_equal(arrays["vectors"], expected)


def test_a_corpus_without_a_document_is_an_error(encoder: OnnxEncoder, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("{}\n")
    with pytest.raises(CorpusError, match="no document"):
        embed.embed_corpus(tmp_path / "c.jsonl", encoder, SilentProgress())
