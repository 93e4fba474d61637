"""A batch says the same of a document as the document alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from encoder.models.smith import Smith
from encoder.training.batch import DocumentArrays, block_vectors, collate, encode, split


def test_a_document_has_one_vector_whatever_it_is_padded_with(
    tiny_model: Callable[[], Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model().eval()
    with torch.no_grad():
        together = encode(model, collate(documents))
        alone = torch.cat([encode(model, collate([document])) for document in documents])
    assert torch.allclose(together, alone, atol=1e-6)
    assert together.norm(dim=1).tolist() == pytest.approx([1.0] * len(documents))


def test_chunks_hold_what_the_batch_held(
    tiny_model: Callable[[], Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model().eval()
    batch = collate(documents)
    chunks = split(batch, 4)
    assert [len(chunk) for chunk in chunks] == [4, 4, 1]
    with torch.no_grad():
        parts = torch.cat([encode(model, chunk) for chunk in chunks])
        assert torch.allclose(encode(model, batch), parts, atol=1e-6)


def test_vectors_are_computed_where_there_is_text_and_cached_elsewhere(
    tiny_model: Callable[[], Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model().eval()
    vectors = block_vectors(model, collate(documents))
    cached = torch.from_numpy(documents[3].block_vectors.astype(np.float32))
    assert torch.equal(vectors[3, 2:8], cached[2:])
    tokens = torch.from_numpy(documents[3].tokens[1])[None]
    computed = model.block_encoder(tokens, torch.ones_like(tokens))[0]
    assert torch.allclose(vectors[3, 1], computed, atol=1e-6)


def test_gradients_reach_the_sentence_level_through_text_only(
    tiny_model: Callable[[], Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    cached = [replace(document, places=(), tokens=()) for document in documents]
    encode(model, collate(cached)).sum().backward()
    assert model.block_encoder.projection.weight.grad is None
    encode(model, collate(documents)).sum().backward()
    assert model.block_encoder.projection.weight.grad is not None


def test_term_features_go_with_their_documents() -> None:
    vectors = np.ones((1, 4), np.float32)
    batch = collate(
        [DocumentArrays(vectors, np.array([7.0, 9.0])), DocumentArrays(vectors, np.zeros(2))]
    )
    assert batch.term_features is not None
    assert batch.term_features.tolist() == [[7.0, 9.0], [0.0, 0.0]]
    second = split(batch, 1)[1]
    assert second.term_features is not None
    assert second.term_features.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [DocumentArrays(np.ones((0, 4)))],
        [
            DocumentArrays(np.ones((1, 4))),
            DocumentArrays(np.ones((1, 4)), np.array([1]), np.array([1.0])),
        ],
    ],
    ids=["no-document", "no-block", "some-terms"],
)
def test_what_is_no_batch_is_refused(wrong: list[DocumentArrays]) -> None:
    with pytest.raises(ValueError, match="a batch takes"):
        collate(wrong)
