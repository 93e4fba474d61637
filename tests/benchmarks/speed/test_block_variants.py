"""The sentence level by other engines: each variant gives vectors near those of the checkpoint."""

from pathlib import Path

import numpy as np

from benchmarks.speed.encoders.block_variants import open_variants
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from tests.tools.corpora import TOPIC_WORDS

TEXTS = [
    " ".join(f"{word} {number}." for number, word in enumerate(words * 3)) for words in TOPIC_WORDS
]


def test_variants_read_the_same_documents_and_agree(tiny_checkpoint: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    tokenizer = BlockTokenizer(checkpoint)
    exact = OnnxEncoder(checkpoint, precision="fp32", threads=2)
    expected = exact.encode([tokenizer(text) for text in TEXTS]).document_vectors
    names = []
    for variant in open_variants(checkpoint, 2, TEXTS, tmp_path):
        found = variant.encode(variant.tokenise(TEXTS))
        assert found.shape == expected.shape
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-4)
        cosines = (found * expected).sum(1)
        names.append(variant.name.removeprefix(f"{checkpoint.name} "))
        assert cosines.min() > (0.5 if names[-1] == "token vectors" else 0.9), names[-1]
        assert variant.encode(variant.tokenise(TEXTS)).tolist() == found.tolist()
    assert names[-4:] == [
        "int8 static",
        "int8, 2 blocks a call",
        "int8, 4 blocks a call",
        "token vectors",
    ]
