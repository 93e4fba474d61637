"""The first layer of the term channel: what the fit keeps, and what folding changes."""

import numpy as np
import pytest
import torch

from encoder.arrays import Float32
from encoder.errors import EncoderError
from encoder.terms.term_table import Terms, TermTable
from training.models.smith import Smith, SmithConfig
from training.recipe import TermRecipe
from training.term_channel import begin_as_terms, fit_term_table, fold_projection

ROWS = 200
RECIPE = TermRecipe(dimension=6, buckets=0, span=8, power=0.0, documents=60)


def corpus(number: int = 40, seed: int = 0, kinds: int = 8) -> list[Terms]:
    """Documents of a few subjects, each with words of its own, so that few dimensions hold them."""
    random = np.random.default_rng(seed)
    subjects = random.dirichlet(np.full(ROWS, 0.05), size=kinds)
    documents = []
    for place in range(number):
        words = random.choice(ROWS, size=60, p=subjects[place % kinds])
        rows, counts = np.unique(words, return_counts=True)
        documents.append(Terms(rows.astype(np.int64), counts.astype(np.float32)))
    return documents


def tfidf(documents: list[Terms], table: TermTable) -> Float32:
    dense = np.zeros((len(documents), ROWS), dtype=np.float32)
    for row, terms in enumerate(documents):
        dense[row, terms.rows] = np.log1p(terms.counts) * table.weights[terms.rows]
    return dense / np.linalg.norm(dense, axis=1, keepdims=True)


def features(documents: list[Terms], table: TermTable) -> Float32:
    return np.stack([table.features(terms) for terms in documents])


def unrounded(table: TermTable) -> Float32:
    return table.vectors * table.scales[:, None]


def test_the_span_keeps_the_cosines_of_training_documents() -> None:
    documents = corpus()
    recipe = RECIPE.model_copy(update={"span": 39})  # 40 documents span 39
    table = fit_term_table([documents], ROWS, recipe, 0)
    found = features(documents, table)
    exact = tfidf(documents, table)
    # The scale of all columns together is free: cosines are what is kept.
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    assert np.abs(found @ found.T - exact @ exact.T).max() <= 0.03
    narrow = features(documents, fit_term_table([documents], ROWS, RECIPE, 0))
    narrow /= np.linalg.norm(narrow, axis=1, keepdims=True)
    of_kind = np.equal.outer(np.arange(40) % 8, np.arange(40) % 8)
    assert (narrow @ narrow.T)[of_kind].min() > (narrow @ narrow.T)[~of_kind].max()


def test_the_dimensions_of_the_span_are_orthogonal() -> None:
    span = unrounded(fit_term_table([corpus()], ROWS, RECIPE, 0))
    cosines = span.T @ span / np.outer(*[np.linalg.norm(span, axis=0)] * 2)
    assert np.abs(cosines - np.eye(8)).max() <= 0.02  # rounding to int8 is what is left


def test_a_power_makes_the_lengths_of_the_span_more_alike() -> None:
    found = []
    for power in (0.0, 0.5):
        table = fit_term_table([corpus()], ROWS, RECIPE.model_copy(update={"power": power}), 0)
        lengths = np.linalg.norm(features(corpus(), table), axis=0)
        found.append(lengths.max() / lengths.min())
    assert found[1] < found[0]


def test_the_same_documents_and_seed_give_the_same_table() -> None:
    few = RECIPE.model_copy(update={"documents": 20})  # of 40
    first, again, other = (fit_term_table([corpus()], ROWS, few, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.vectors, again.vectors)
    assert np.array_equal(first.scales, again.scales)
    assert not np.array_equal(first.vectors, other.vectors)


def test_each_corpus_weighs_the_same_whatever_its_size() -> None:
    large, small = corpus(40, kinds=2), corpus(10, seed=1, kinds=2)
    table = fit_term_table([large, small], ROWS, RECIPE, 0)
    shares = [
        np.bincount(np.concatenate([t.rows for t in some]), minlength=ROWS) / len(some)
        for some in (large, small)
    ]
    assert np.allclose(table.weights, np.maximum(-np.log(sum(shares) / 2 + 1 / 50), 0), atol=1e-5)


def test_a_span_wider_than_the_documents_has_zero_columns() -> None:
    three = corpus(3)
    table = fit_term_table([three * 10], ROWS, RECIPE, 0)
    vectors = unrounded(table)
    assert np.isfinite(vectors).all()
    assert (np.abs(vectors).max(axis=0) > 0).tolist() == [True] * 3 + [False] * 5


@pytest.mark.parametrize("corpora", [[], [corpus(8)]])
def test_too_few_documents_are_refused(corpora: list[list[Terms]]) -> None:
    with pytest.raises(EncoderError, match=r"more than 8 documents \(terms.span\)"):
        fit_term_table(corpora, ROWS, RECIPE, 0)


def test_documents_that_no_word_tells_apart_are_refused() -> None:
    with pytest.raises(EncoderError, match="no word tells the documents apart"):
        fit_term_table([corpus(1) * 20], ROWS, RECIPE, 0)


@pytest.fixture
def grown() -> Smith:
    """A model with a term channel that takes the features of `RECIPE`."""
    torch.manual_seed(5)
    config = SmithConfig(
        vocabulary_size=50, block_length=8, max_blocks=8, hidden_size=16, intermediate_size=32,
        attention_heads=2, sentence_layers=1, document_layers=1, dimension=12 + RECIPE.dimension,
        term_features=RECIPE.span, term_dimension=RECIPE.dimension,
    )  # fmt: skip
    return Smith(config).eval()


def encode(model: Smith, term_features: Float32) -> Float32:
    blocks = torch.nn.functional.normalize(
        torch.randn(len(term_features), 3, 16, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    mask = torch.ones(len(blocks), 3, dtype=torch.int64)
    with torch.no_grad():
        vectors: Float32 = model.document_encoder(
            blocks, mask, torch.from_numpy(term_features)
        ).numpy()
    return vectors


def test_a_channel_begins_as_the_strongest_of_the_span(grown: Smith) -> None:
    documents = corpus()
    found = features(documents, fit_term_table([documents], ROWS, RECIPE, 0))
    begin_as_terms(grown.document_encoder, RECIPE)
    with torch.no_grad():
        projected = grown.document_encoder.term_projection(torch.from_numpy(found)).numpy()
    assert np.allclose(projected, found[:, :6], atol=1e-6)
    vectors = encode(grown, found)
    terms, blocks = (np.linalg.norm(part, axis=1) for part in (vectors[:, :6], vectors[:, 6:]))
    assert np.allclose(blocks / terms, RECIPE.balance, atol=1e-5)


def test_folding_changes_no_document_vector_but_by_rounding(grown: Smith) -> None:
    documents = corpus()
    table = fit_term_table([documents], ROWS, RECIPE, 0)
    projection = grown.document_encoder.term_projection
    with torch.no_grad():  # as training would leave it: no identity, and a bias
        projection.weight.normal_(std=0.3, generator=torch.Generator().manual_seed(2))
        projection.bias.normal_(std=0.05, generator=torch.Generator().manual_seed(3))
    before = encode(grown, features(documents, table))
    folded = fold_projection(grown.document_encoder, table)
    assert folded.width == RECIPE.dimension
    assert np.array_equal(folded.weights, table.weights)
    after = encode(grown, features(documents, folded))
    assert (before * after).sum(1).min() >= 0.999
    again = fold_projection(grown.document_encoder, folded)
    assert np.abs(encode(grown, features(documents, again)) - after).max() <= 1e-2
