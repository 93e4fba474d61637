"""Fit an adapter to a corpus from its texts alone: a latent semantic analysis of their terms.

The choices below measured best on the average of the validation queries of three corpora, see
docs/results/experiments.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder.adapter import (
    BUCKETS,
    Adapter,
    adapter_vocabulary,
    format_adapter,
    parse_adapter,
    require_fits,
)
from encoder.arrays import Float32, Int64
from encoder.atomic_files import write_atomically
from encoder.checkpoint import Checkpoint
from encoder.errors import EmptyTextError
from encoder.terms.term_table import Terms, TermTable, count_words, quantise_term_table
from encoder.terms.title_matcher import NO_TITLES, TitleMatcher, match_token_titles
from encoder.tokenizer import BlockTokenizer
from index.corpus.reader import Corpus, count_documents, read_corpus
from index.directory.data_directory import ADAPTER_FILE, STORE_FILE, locked, settle
from index.document import Document
from index.errors import CorpusError, StoreError
from index.progress import Progress


@dataclass(frozen=True, slots=True)
class CorpusAdapter:
    """The adapter of a data directory; `kept` if it existed before."""

    adapter: Adapter
    kept: bool


def adapt_data_directory(
    corpus: Corpus,
    data: Path,
    checkpoint: Checkpoint,
    tokenizer: BlockTokenizer,
    progress: Progress,
) -> CorpusAdapter:
    """Fit an adapter to a corpus and store it, unless the data directory already has one.

    It is on the disk at return, so that a repeated job uses the same one.

    Raises:
        AdapterError: the existing one is damaged or of another checkpoint.
        CorpusError: the corpus cannot be read, or nothing can be fitted to it.
        StoreError: the directory holds documents that were not adapted, is in use, or cannot be
            written.
    """
    with locked(data):
        found = read_corpus_adapter(data, checkpoint)
        if found is not None:
            return CorpusAdapter(found, kept=True)
        if (data / STORE_FILE).exists():
            raise StoreError(
                f"{data}: was made without --adapt, and vectors of both kinds cannot be compared: "
                "index the corpus with --adapt into a new data directory"
            )
        counted = count_corpus(corpus, checkpoint, tokenizer, progress)
        adapter = fit_adapter(counted, checkpoint, progress)
        write_corpus_adapter(data, adapter)
        return CorpusAdapter(adapter, kept=False)


def write_corpus_adapter(directory: Path, adapter: Adapter) -> None:
    """Write the file into a data directory, whole or not at all.

    Raises:
        OSError: the disk did not take it.
    """
    write_atomically(directory / ADAPTER_FILE, format_adapter(adapter))


def read_corpus_adapter(directory: Path, checkpoint: Checkpoint) -> Adapter | None:
    """Read the adapter of a data directory; None where it has none.

    Raises:
        AdapterError: it is damaged, or was fitted for another checkpoint.
        StoreError: it cannot be read.
    """
    settle(directory)
    path = directory / ADAPTER_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    adapter = parse_adapter(data, str(path))
    require_fits(adapter, checkpoint, str(path))
    return adapter


DOCUMENTS = 20_000  # a larger corpus is sampled, which bounds terms and memory
MIN_DOCUMENTS = 5
TERMS = 150_000  # the most frequent ones; each takes DIMENSION bytes
DIMENSION = 512
WEIGHT = 0.2
_RARE, _COMMON = 2, 0.5  # terms of fewer documents, or a larger share of them, get no weight
_OVERSAMPLE, _ITERATIONS = 32, 3  # of the randomised singular value decomposition
_POWER = 0.5  # of the singular values that coordinates are divided by
_SMALLEST = 1e-3  # singular values under this share of the largest are noise
_SEED = 0


@dataclass(frozen=True, slots=True)
class CountedCorpus:
    """The terms that an adapter is fitted to.

    Attributes:
        documents: the terms of each, including the titles that it names.
        titles: that were searched for.
    """

    documents: Sequence[Terms]
    titles: TitleMatcher = NO_TITLES


def count_corpus(
    corpus: Corpus, checkpoint: Checkpoint, tokenizer: BlockTokenizer, progress: Progress
) -> CountedCorpus:
    """Count the terms of the documents of a corpus, or of a sample of a large one.

    Raises:
        AdapterError: the encoder cannot be adapted.
        CorpusError: the corpus cannot be read at all.
    """
    vocabulary = adapter_vocabulary(checkpoint)
    total = count_documents(corpus)
    progress.started("reading titles", total)
    titles = find_titles(_titles(corpus, progress), tokenizer)
    progress.started("counting words", total)
    counted = []
    for document in read_corpus(corpus):
        tokens = 0
        if isinstance(document, Document) and in_sample(document, total):
            try:
                read = tokenizer(document.text)
            except EmptyTextError:
                continue  # skipped and reported when it is encoded
            counted.append(count_words(vocabulary, read.blocks, titles))
            tokens = read.receipt.tokens_read
        progress.advanced(1, tokens=tokens)
    return CountedCorpus(counted, titles)


def find_titles(titles: Iterable[str], tokenizer: BlockTokenizer) -> TitleMatcher:
    """Make a matcher of the titles of a corpus; titles without a token are left out."""
    return match_token_titles(_tokens(title, tokenizer) for title in titles)


def _titles(corpus: Corpus, progress: Progress) -> Iterator[str]:
    for document in read_corpus(corpus):
        if isinstance(document, Document):
            yield document.title
        progress.advanced(1)


def _tokens(title: str, tokenizer: BlockTokenizer) -> list[int]:
    try:
        return list(chain.from_iterable(tokenizer(title).blocks))
    except EmptyTextError:
        return []


def in_sample(document: Document, total: int) -> bool:
    """Return whether a document of a corpus of `total` is sampled, which its text decides."""
    return int.from_bytes(document.content_hash[:6]) * total < DOCUMENTS << 48


def fit_adapter(corpus: CountedCorpus, checkpoint: Checkpoint, progress: Progress) -> Adapter:
    """Fit an adapter to the documents of a corpus.

    The same terms give the same adapter (up to the arithmetic of the processor).

    Args:
        corpus: the terms of N documents.
        checkpoint: whose vectors it joins.
        progress: is notified that the step begins.

    Raises:
        CorpusError: too few documents, or none of them has a word that another has.
    """
    counted, vocabulary = corpus.documents, adapter_vocabulary(checkpoint)
    if len(counted) < MIN_DOCUMENTS:
        raise CorpusError(
            f"--adapt: the corpus has {len(counted)} readable documents, and it takes "
            f"{MIN_DOCUMENTS}: index it without"
        )
    progress.started("fitting the adapter", None)
    weights = _weigh(counted, vocabulary.rows)
    rows = np.flatnonzero(weights)
    if len(rows) == 0:
        raise CorpusError(
            "--adapt: the corpus has no word that two documents share and half of them lack: "
            "index it without"
        )
    table = _analyse(_unit_rows(counted, weights, rows), weights[rows])
    return Adapter(
        base=checkpoint.fingerprint,
        buckets=BUCKETS,
        rows=rows,
        table=table,
        weight=WEIGHT,
        documents=len(counted),
        titles=corpus.titles.only(weights[vocabulary.rows_of(corpus.titles.hashes)] > 0),
    )


def _weigh(counted: Sequence[Terms], rows: int) -> Float32:
    """Return the inverse document frequencies Float32[rows]; 0 for excluded terms."""
    documents = len(counted)
    having = np.zeros(rows, dtype=np.int64)
    for terms in counted:
        having[terms.rows] += 1
    used = (having >= _RARE) & (having <= _COMMON * documents)
    ranked = np.flatnonzero(used)[np.argsort(-having[used], kind="stable")]
    used[ranked[TERMS:]] = False
    weights = np.log((1.0 + documents) / (1.0 + having)) * used
    rounded: Float32 = weights.astype(np.float32)
    return rounded


@dataclass(frozen=True, slots=True)
class _Sparse:
    """A matrix Float32[N, M] of few entries, row by row.

    Attributes:
        ends: Int64[N + 1], where each row begins and ends among the entries.
        columns: Int32[entries].
        values: Float32[entries].
        width: M.
    """

    ends: Int64
    columns: NDArray[np.int32]
    values: Float32
    width: int

    def times(self, dense: Float32) -> Float32:
        """Return the product with Float32[M, K]."""
        product = np.empty((len(self.ends) - 1, dense.shape[1]), dtype=np.float32)
        for row, (start, end) in enumerate(pairwise(self.ends.tolist())):
            product[row] = self.values[start:end] @ dense[self.columns[start:end]]
        return product

    def transposed(self) -> "_Sparse":
        """Return the transposed matrix."""
        rows = np.repeat(np.arange(len(self.ends) - 1, dtype=np.int32), np.diff(self.ends))
        order = np.argsort(self.columns, kind="stable")
        sizes = np.bincount(self.columns, minlength=self.width)
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
        return _Sparse(ends, rows[order], self.values[order], len(self.ends) - 1)


def _unit_rows(counted: Sequence[Terms], weights: Float32, rows: Int64) -> _Sparse:
    """Return the weighted log counts of N documents, each of unit norm, of the terms `rows`."""
    column_of = np.zeros(len(weights), dtype=np.int32)
    column_of[rows] = np.arange(len(rows))
    sizes = [np.count_nonzero(weights[terms.rows]) for terms in counted]
    ends = np.cumsum([0, *sizes])
    matrix = _Sparse(ends, np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32), len(rows))
    for (start, end), terms in zip(pairwise(ends.tolist()), counted, strict=True):
        known = weights[terms.rows] > 0
        some = np.log1p(terms.counts[known]) * weights[terms.rows[known]]
        matrix.columns[start:end] = column_of[terms.rows[known]]
        matrix.values[start:end] = some / max(float(np.linalg.norm(some)), 1e-12)
    return matrix


def _analyse(matrix: _Sparse, weights: Float32) -> TermTable:
    """Return vectors of R terms: the right singular vectors of a matrix Float32[N, R], scaled.

    By randomised subspace iteration: few passes, and never a dense N x R or N x N matrix.
    """
    documents, terms = len(matrix.ends) - 1, matrix.width
    rank = min(DIMENSION, documents - 1, terms)
    size = min(rank + _OVERSAMPLE, documents, terms)
    transposed = matrix.transposed()
    start = np.random.default_rng(_SEED).standard_normal((terms, size), dtype=np.float32)
    basis = np.linalg.qr(matrix.times(start))[0]  # [N, size]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(matrix.times(transposed.times(basis)))[0]
    projected = transposed.times(basis)  # [R, size]
    squares, rotation = np.linalg.eigh((projected.T @ projected).astype(np.float64))
    values = np.sqrt(np.maximum(squares[::-1][:rank], 0.0))
    kept = int((values > _SMALLEST * values[0]).sum())
    scaled = rotation[:, ::-1][:, :kept] / values[:kept] ** (1 + _POWER)
    return quantise_term_table(weights, _signed(projected @ scaled.astype(np.float32)))


def _signed(vectors: Float32) -> Float32:
    """Flip the sign of columns so that the largest component of each is positive."""
    largest: Int64 = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    turned: Float32 = vectors * signs
    return turned
