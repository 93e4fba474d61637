"""The first layer of the term channel, fitted on counts of terms: no gradient is needed for it.

A TF-IDF vector has as many dimensions as there are terms. For documents like those of training,
latent semantic analysis preserves cosines in few dimensions: the span. A linear layer over it is
then trained (`term_projection`), and finally folded into one table of few dimensions
(`fold_projection`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.errors import EncoderError
from encoder.terms.term_channel import (
    NO_HASHED_TERMS,
    HashedTerms,
    TermChannel,
    hashed_vocabulary,
)
from encoder.terms.term_table import (
    Terms,
    TermTable,
    count_words,
    quantise_term_table,
    read_term_vocabulary,
)
from encoder.tokenizer import open_tokenizer
from evaluation.block_archive import BlockArchive
from training.distillation import smaller_config, weights_of_layers
from training.export.create import load_model
from training.models.architecture import EncoderModel
from training.models.layers import project_first
from training.models.smith import DocumentEncoder
from training.recipe import TermRecipe, TrainingRecipe

_OF_CHANNEL = frozenset(
    f"document_encoder.{name}"
    for name in ("term_projection.weight", "term_projection.bias", "balance", "sketch_balance")
)


def fit_channel(
    start: Checkpoint,
    recipe: TrainingRecipe,
    archives: Sequence[BlockArchive],
    rows: Sequence[Int64],
) -> TermChannel | None:
    """Fit a new term channel, the same in a run and when it is resumed.

    Args:
        recipe: says how large it is.
        rows: of each archive, those of the documents to fit it on.

    Returns:
        None where the channel of the start, if any, is to be trained: the recipe requests none, or
        the start has one and there are too few documents to fit another.
    """
    terms = recipe.terms
    too_few = sum(map(len, rows)) <= terms.span
    if not terms.dimension or (start.model.get("term_features") and too_few):
        return None

    def counted(count: Callable[[Sequence[Sequence[int]]], Terms]) -> list[list[Terms]]:
        return [
            [count(archive.blocks(int(row))) for row in some]
            for archive, some in zip(archives, rows, strict=True)
            if len(some)
        ]

    vocabulary = read_term_vocabulary(open_tokenizer(start), terms.buckets)
    table = fit_term_table(counted(vocabulary.count), vocabulary.rows, terms, recipe.seed)
    if not terms.hashed_dimension:
        return TermChannel(vocabulary, table, NO_HASHED_TERMS)
    words = hashed_vocabulary(start)
    weights = term_weights(counted(partial(count_words, words)), words.rows)
    halved = weights.astype(np.float16).astype(np.float32)  # as a checkpoint keeps them
    return TermChannel(vocabulary, table, HashedTerms(words, halved, terms.hashed_dimension))


def open_model(start: Checkpoint, recipe: TrainingRecipe, new: TermChannel | None) -> EncoderModel:
    """Load the model of the start, with a new term channel if there is one.

    Of the sentence level it has the layers that the recipe keeps.
    """
    model = load_model(start)
    config = replace(model.config, dropout=recipe.dropout)
    weights: Mapping[str, Tensor] = model.state_dict()
    level = recipe.sentence_level
    if level.changes_layers:
        config = smaller_config(config, level)
    if level.kept_layers:
        weights = weights_of_layers(weights, level.kept_layers)
    if new:
        config = model.with_term_channel(config, recipe.terms, new.table.width)
        weights = {n: tensor for n, tensor in weights.items() if n not in _OF_CHANNEL}
    torch.manual_seed(recipe.seed)
    grown = type(model)(config)
    grown.load_state_dict(weights, strict=new is None)
    if new:
        begin_as_terms(cast(DocumentEncoder, grown.document_encoder), recipe.terms)
    return grown.eval()


_SMALLEST = 1e-6  # share of the largest singular value squared, under which there is only rounding


def fit_term_table(
    corpora: Sequence[Sequence[Terms]], rows: int, recipe: TermRecipe, seed: int
) -> TermTable:
    """Fit the weights and vectors of terms.

    Args:
        corpora: terms of the training documents of each corpus; all corpora weigh the same in the
            weights of terms, however many documents they have.
        seed: of the sample of documents.

    Returns:
        A table of width `recipe.span`.
    """
    random = np.random.default_rng(seed)
    share = recipe.documents // max(1, len(corpora))
    sample = [terms for corpus in corpora for terms in _some(corpus, share, random)]
    if len(sample) <= recipe.span:
        raise EncoderError(
            f"the term channel takes more than {recipe.span} documents (terms.span) to be fitted "
            f"on, not {len(sample)}"
        )
    weights = term_weights(corpora, rows)
    span = _fit_span(_tfidf(sample, weights), recipe)  # [R, span], orthonormal columns scaled
    return quantise_term_table(weights, span)


def begin_as_terms(encoder: DocumentEncoder, recipe: TermRecipe) -> None:
    """Set the term channel, of `recipe.dimension`, so that it keeps the strongest of the span."""
    project_first(encoder.term_projection)
    with torch.no_grad():
        encoder.balance.fill_(float(np.log(recipe.balance)))
        if recipe.hashed_dimension:
            encoder.sketch_balance.fill_(float(np.log(recipe.hashed_balance)))


def fold_projection(encoder: DocumentEncoder, table: TermTable) -> TermTable:
    """Move the trained projection into the table, and leave the identity in its place.

    Features are linear in the table, so this changes nothing but their width, which becomes
    `term_dimension`; the caller writes `term_features` of the configuration accordingly.
    """
    weight = encoder.term_projection.weight.detach().float().cpu().numpy()  # [width, features]
    vectors = table.vectors.astype(np.float32) * table.scales[:, None]
    folded = vectors @ weight.T
    bias = encoder.term_projection.bias.detach()
    width = len(bias)
    encoder.term_projection = torch.nn.Linear(width, width).to(bias.device)
    with torch.no_grad():
        encoder.term_projection.weight.copy_(torch.eye(width))
        encoder.term_projection.bias.copy_(bias)
    return quantise_term_table(table.weights, folded)


def term_weights(corpora: Sequence[Sequence[Terms]], rows: int) -> Float32:
    """Return the inverse document frequency of each term, 0 where it is in nearly every text.

    Args:
        corpora: terms of the documents of each corpus; all corpora weigh the same.

    Returns:
        Float32[rows]; a term that no document has weighs as one that a single document has.
    """
    shares = np.zeros(rows)
    for corpus in corpora:
        found = np.concatenate([terms.rows for terms in corpus])
        shares += np.bincount(found, minlength=rows) / len(corpus) / len(corpora)
    rarest = 1 / sum(map(len, corpora))
    weights: Float32 = np.maximum(np.log(1 / (rarest + shares)), 0).astype(np.float32)
    return weights


def _some(corpus: Sequence[Terms], number: int, random: np.random.Generator) -> Sequence[Terms]:
    if len(corpus) <= number:
        return corpus
    chosen = np.sort(random.choice(len(corpus), number, replace=False))
    return [corpus[place] for place in chosen]


def _tfidf(documents: Sequence[Terms], weights: Float32) -> Any:
    """Return TF-IDF vectors of unit norm as a sparse matrix [N, R]."""
    import scipy.sparse

    values, ends = [], [0]
    for terms in documents:
        some = np.log1p(terms.counts) * weights[terms.rows]
        values.append(some / max(float(np.linalg.norm(some)), 1e-9))
        ends.append(ends[-1] + len(some))
    columns = np.concatenate([terms.rows for terms in documents])
    data = np.concatenate(values).astype(np.float32)
    return scipy.sparse.csr_matrix((data, columns, ends), shape=(len(documents), len(weights)))


def _fit_span(matrix: Any, recipe: TermRecipe) -> Float32:
    """Return the right singular vectors [R, span], scaled by a power of the singular values.

    By the Gram matrix of the documents: exact, and small where documents are thousands. Where
    documents span fewer dimensions than requested, the remaining columns are zero.
    """
    from scipy.linalg import eigh

    gram = (matrix @ matrix.T).toarray()
    last = len(gram) - 1
    values, vectors = eigh(gram, subset_by_index=[last - recipe.span + 1, last])
    values, vectors = values[::-1], vectors[:, ::-1]
    spanned = values > _SMALLEST * values[0]
    if not spanned.any():
        raise EncoderError("the term channel cannot be fitted: no word tells the documents apart")
    values = np.where(spanned, values, values[0])
    scales = np.where(spanned, (values / values[0]) ** (-recipe.power / 2), 0)
    scales /= np.sqrt((scales[spanned] ** 2).mean())
    left = (vectors / np.sqrt(values) * scales).astype(np.float32)
    # The sign of a singular vector is free; fixed here, so that every machine finds the same.
    left *= np.sign(left[np.abs(left).argmax(0), np.arange(recipe.span)])
    span: Float32 = (matrix.T @ left).astype(np.float32)
    return span
