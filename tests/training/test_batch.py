"""A batch says the same of a document as the document alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from training.batch import DocumentArrays, collate, encode, split
from training.models.colde import Colde
from training.models.smith import Smith


def test_a_document_has_one_vector_whatever_it_is_padded_with(
    tiny_model: Callable[[], Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model().eval()
    with torch.no_grad():
        together = encode(model, collate(documents))
        alone = torch.cat([encode(model, collate([document])) for document in documents])
    assert torch.allclose(together, alone, atol=1e-6)
    assert together.norm(dim=1).tolist() == pytest.approx([1.0] * len(documents))


def test_term_features_go_with_their_documents() -> None:
    vectors = np.ones((1, 4), np.float32)
    documents = [DocumentArrays(vectors, np.array(row)) for row in ([7.0, 9.0], [0.0, 0.0])]
    features = collate(documents).term_features
    assert features is not None
    assert features.tolist() == [[7.0, 9.0], [0.0, 0.0]]


def sectioned(documents: list[DocumentArrays], *sizes: int) -> list[DocumentArrays]:
    """Name rows as the sections of documents of so many sections each."""
    numbers = [(number, size) for size in sizes for number in range(size)]
    return [
        replace(document, section=number, sections=size)
        for document, (number, size) in zip(documents, numbers, strict=True)
    ]


def test_each_section_knows_its_successor(documents: list[DocumentArrays]) -> None:
    assert collate(documents).sections is None
    sections = collate(sectioned(documents, 2, 1, 3, 1, 2)).sections
    assert sections is not None
    assert sections.numbers.tolist() == [0, 1, 0, 0, 1, 2, 0, 0, 1]
    assert sections.successors.tolist() == [1, 0, 2, 4, 5, 3, 6, 8, 7]


def test_sections_of_a_document_stay_in_one_chunk(
    tiny_colde_model: Callable[[], Colde], documents: list[DocumentArrays]
) -> None:
    model = tiny_colde_model().eval()
    cut = sectioned(documents, 2, 1, 3, 1, 2)
    chunks = split(cut, 2)
    assert [len(chunk) for chunk in chunks] == [2, 1, 3, 1, 2]
    assert [len(chunk) for chunk in split(cut, 4)] == [3, 4, 2]
    with torch.no_grad():
        whole = encode(model, collate(cut))
        parts = torch.cat([encode(model, collate(chunk)) for chunk in chunks])
        alone = encode(model, collate(documents))
    assert torch.allclose(whole, parts, atol=1e-6)
    # Only a document that is not cut has the same vector without its sections.
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, alone, strict=True)]
    assert same == [False, False, True, False, False, False, True, False, False]
