import json
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from evaluation.block_baselines import find_blocks
from evaluation.encoded_corpus import EncodedCorpus, embed_encoded_corpus, encode_corpus
from index.embed import embed_corpus
from index.errors import CorpusError
from index.progress import SilentProgress

TEXTS = {"a": "A river. " * 30, "b": "Music. " * 2_000, "c": "A river. " * 30, "d": "Stones."}


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint: Path) -> OnnxEncoder:
    return OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    path.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in TEXTS.items()))
    return path


@pytest.fixture(scope="module")
def encoded(
    corpus: Path, encoder: OnnxEncoder, tmp_path_factory: pytest.TempPathFactory
) -> EncodedCorpus:
    return encode_corpus(corpus, tmp_path_factory.mktemp("kept"), encoder, SilentProgress(), 90)


def test_kept_blocks_give_the_vectors_of_the_texts(
    corpus: Path, encoded: EncodedCorpus, encoder: OnnxEncoder
) -> None:
    """More blocks are kept of the long one than the checkpoint reads."""
    kept = embed_encoded_corpus(encoded, encoder)
    fresh = embed_corpus(corpus, BlockTokenizer(encoder.checkpoint), encoder, SilentProgress())
    assert kept.ids == fresh.ids
    assert np.allclose(kept.vectors, fresh.vectors, atol=2e-3)
    assert kept.tokens.tolist() == fresh.tokens.tolist()
    assert kept.tokens_read.tolist() == fresh.tokens_read.tolist()


def test_blocks_of_documents_in_any_order(encoded: EncodedCorpus) -> None:
    blocks = find_blocks(encoded, ["d", "c", "a"])
    assert blocks.starts[1] == blocks.starts[2]  # equal texts are kept once
    assert (blocks.ends - blocks.starts).tolist()[0] == 1
    assert blocks.ends[1] - blocks.starts[1] > 1
    with pytest.raises(CorpusError, match="1 documents have no blocks, the first of them 'x'"):
        find_blocks(encoded, ["a", "x"])
