"""What every encoder must keep, in every precision (R14)."""

from collections.abc import Iterator

import numpy as np
import pytest

from encoder.blocks import SentenceBlocks
from encoder.checkpoint import DEFAULT_CHECKPOINT
from encoder.encoder import Encoder
from encoder.golden import GOLDEN_TEXTS
from encoder.onnx_encoder import OnnxEncoder
from encoder.opening import find_encoder, open_encoder
from encoder.sentence_model.encoder import SentenceModelEncoder
from encoder.sentence_model.server import ServerEncoder
from tests.kit.embedding_server import serve_embeddings

ENCODERS = [
    *("tiny-fp32", "tiny-int8", "shipped-int8", "terms-fp32", "colde-fp32", "ernie_doc-fp32"),
    *("sentence_onnx-fp32", "sentence_decoder-fp32", "sentence_static-fp32", "server-server"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            *("tiny-fp16", "sentence_bert-fp32", "terms-fp16"),
            *("terms-int8", "colde-fp16", "colde-int8"),
            *("ernie_doc-fp16", "ernie_doc-int8"),
        )
    ),
]
TEXTS = ["a", *GOLDEN_TEXTS[:6], GOLDEN_TEXTS[6][:3000]]  # the first is one token


@pytest.fixture(scope="module", params=ENCODERS)
def encoder(request: pytest.FixtureRequest) -> Iterator[Encoder]:
    name, precision = request.param.split("-")
    fixtures = {"tiny": "tiny_checkpoint", "terms": "tiny_terms", "colde": "tiny_colde"}
    fixtures["ernie_doc"] = "tiny_ernie_doc"
    if name == "server":
        with serve_embeddings(request.getfixturevalue("sentence_model")("bert")) as server:
            yield open_encoder(find_encoder(f"{server.url}#block=400"))
        return
    if name in fixtures:
        directory = request.getfixturevalue(fixtures[name])
    elif name.startswith("sentence_"):
        directory = request.getfixturevalue("sentence_model")(name.removeprefix("sentence_"))
    else:
        directory = DEFAULT_CHECKPOINT
    yield open_encoder(find_encoder(str(directory)), precision=precision, threads=2)


@pytest.fixture(scope="module")
def documents(encoder: Encoder) -> list[SentenceBlocks]:
    return [encoder.read(text) for text in TEXTS]


def test_shape_type_and_unit_norm(encoder: Encoder, documents: list[SentenceBlocks]) -> None:
    encoded = encoder.encode(documents)
    assert encoded.document_vectors.shape == (len(documents), encoder.dimension)
    assert encoded.document_vectors.dtype == np.float32
    for document, blocks in zip(documents, encoded.block_vectors, strict=True):
        assert blocks.shape == (len(document.blocks), encoder.checkpoint.block_dimension)
        assert np.allclose(np.linalg.norm(blocks, axis=1), 1, atol=1e-3)
    assert np.allclose(np.linalg.norm(encoded.document_vectors, axis=1), 1, atol=1e-3)


def test_batch_mates_change_nothing(encoder: Encoder, documents: list[SentenceBlocks]) -> None:
    together = encoder.encode(documents).document_vectors
    backwards = encoder.encode(documents[::-1]).document_vectors[::-1]
    alone = np.concatenate([encoder.encode([d]).document_vectors for d in documents])
    assert np.abs(together - alone).max() <= 1e-4
    assert np.abs(together - backwards).max() <= 1e-4


def test_packed_calls_equal_single_calls(encoder: Encoder, documents: list[SentenceBlocks]) -> None:
    """The way of a GPU: several blocks a call, padded to a few shapes."""
    if encoder.precision == "int8":
        tolerance = 0.2  # the shared scale of dynamic int8: why a CPU takes one block a call
    else:
        tolerance = 1e-4 if encoder.precision == "fp32" else 2e-3
    if isinstance(encoder, ServerEncoder):
        return  # the server packs
    assert isinstance(encoder, OnnxEncoder | SentenceModelEncoder)
    packed = type(encoder)(encoder.checkpoint, precision=encoder.precision, batch_tokens=256)
    difference = (
        packed.encode(documents).document_vectors - encoder.encode(documents).document_vectors
    )
    assert np.abs(difference).max() <= tolerance


def test_receipts_add_up(encoder: Encoder, documents: list[SentenceBlocks]) -> None:
    shape = encoder.checkpoint
    endless = encoder.read("harbour " * (shape.max_blocks * shape.block_capacity + 1))
    assert endless.receipt.blocks == shape.max_blocks
    for document in [*documents, endless]:
        receipt = document.receipt
        assert len(document.blocks) == len(document.offsets) == receipt.blocks
        assert sum(map(len, document.blocks)) == receipt.tokens_read == receipt.tokens_encoded
        assert (receipt.tokens_read == receipt.tokens) == (receipt.blocks_left_out == 0)
        assert max(map(len, document.blocks)) <= encoder.checkpoint.block_capacity


def test_nothing_to_encode(encoder: Encoder) -> None:
    encoded = encoder.encode([])
    assert encoded.document_vectors.shape == (0, encoder.dimension)
    assert encoded.block_vectors == ()
    assert encoder.encode_blocks([]).shape == (0, encoder.checkpoint.block_dimension)


def test_the_golden_batch_holds(encoder: Encoder) -> None:
    encoder.warm_up()
