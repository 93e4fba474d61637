"""What a reranker learns from: the first candidates of a lexical first stage, told apart by links.

A reranker sees nothing but candidates that another system put first, so that is what it is trained
on: of each document with links, its lexical neighbours within the training part.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder.noise_filter import ReadText
from encoder.pair_reader import PairReader
from encoder.pair_table import (
    LabelledPair,
    PairTable,
    join_tables,
    make_pair_table,
    read_pair_table,
    write_pair_table,
)
from encoder.reranker_checkpoint import RerankerCheckpoint
from index.corpus import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.leaks import TRAIN, VALID, choose_parts, given_parts, refuse_equal_texts
from index.mode_systems import lexical_system
from index.neighbours import find_neighbours
from index.observer import Observer
from index.pairs import read_pairs
from index.qrels import Qrels, read_qrels
from index.splits import read_splits
from index.systems import rank
from index.training_files import CorpusFiles
from index.vector_index import NO_VECTOR, Int64

VALID_QUERIES = 32  # of a corpus that validation reranks at most
PAIRS = 12_000  # of a corpus that are filtered and kept for training, at most
MATCHES = 0.4  # of them where there are so many
_PAIRS_A_STEP = 64


@dataclass(frozen=True, slots=True)
class RerankCorpus:
    """One corpus of N documents.

    Attributes:
        files: where it came from.
        ids: N document ids.
        texts: N texts.
        hashes: N SHA-256 of the texts, in hex.
        parts: Int64[N], TRAIN, VALID, TEST or LEFT_OUT.
        qrels: its links, as judgements whose queries are documents.
    """

    files: CorpusFiles
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    hashes: tuple[str, ...]
    parts: Int64
    qrels: Qrels


@dataclass(frozen=True, slots=True)
class RerankData:
    """Pairs to train on, and candidates of validation queries; see `PairTable`."""

    training: PairTable
    validation: PairTable


def read_rerank_corpus(files: CorpusFiles, seed: int = 0) -> RerankCorpus:
    """Read a corpus with its links and parts.

    Raises:
        CorpusError: there are no links, a file cannot be read or does not fit, or a text is both
            for training and for validation or testing.
    """
    if files.qrels is None:
        raise CorpusError(f"{files.corpus}: training a reranker takes links (qrels.tsv beside it)")
    documents = [item for item in read_corpus(files.corpus) if isinstance(item, Document)]
    ids = tuple(document.id for document in documents)
    hashes = tuple(document.content_hash.hex() for document in documents)
    splits = read_splits(files.splits) if files.splits else None
    parts = given_parts(ids, splits)
    if splits is None:
        parts = choose_parts(parts, hashes, {}, seed)
    refuse_equal_texts(
        (f"{name!r} of {files.corpus}", h, part)
        for name, h, part in zip(ids, hashes, parts.tolist(), strict=True)
    )
    texts = tuple(document.text for document in documents)
    return RerankCorpus(files, ids, texts, hashes, parts, read_qrels(files.qrels))


def prepare_rerank_data(
    corpora: Sequence[RerankCorpus],
    checkpoint: RerankerCheckpoint,
    candidates: int,
    work: Path,
    observer: Observer,
) -> RerankData:
    """Filter and tokenise the pairs of corpora, or read what was made of them before.

    Args:
        corpora: at least one.
        checkpoint: that reads the pairs.
        candidates: of each document with links; at most those that `find_neighbours` keeps.
        work: where neighbours and tables are kept.
        observer: hears of pairs as of documents.

    Raises:
        CorpusError: an extra is not installed, or a corpus has no link within a part.
    """
    work.mkdir(parents=True, exist_ok=True)
    reader = PairReader(checkpoint)
    tables: list[tuple[PairTable, PairTable]] = []
    for number, corpus in enumerate(corpora):
        key = _key(corpus, checkpoint, candidates)
        paths = [work / f"{key}-{part}.npz" for part in ("train", "valid")]
        if not all(path.exists() for path in paths):
            pairs = _training_pairs(corpus, candidates, work / f"{key}-neighbours")
            judged = _validation_pairs(corpus, candidates)
            for path, some in zip(paths, (pairs, judged), strict=True):
                write_pair_table(path, _tokenise(some, corpus, reader, observer))
        train, valid = (read_pair_table(path) for path in paths)
        groups = np.full(len(train), number, dtype=np.int64)
        tables.append(
            (replace(train, groups=groups), replace(valid, groups=valid.groups + number * 100_000))
        )
    training, validation = zip(*tables, strict=True)
    return RerankData(join_tables(training), join_tables(validation))


def rerank_fingerprint(corpora: Sequence[RerankCorpus], checkpoint: RerankerCheckpoint) -> str:
    """Return what names the data and the checkpoint of a run: a resumed one must see the same."""
    keys = [_key(corpus, checkpoint, 0) for corpus in corpora]
    return hashlib.sha256(" ".join([checkpoint.fingerprint, *keys]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _RowPair:
    """Two rows of a corpus; the others as of `LabelledPair`."""

    first: int
    second: int
    label: float
    group: int = 0
    score: float = 0.0


def _training_pairs(corpus: RerankCorpus, candidates: int, directory: Path) -> list[_RowPair]:
    rows = np.flatnonzero(corpus.parts == TRAIN)
    linked = _links(corpus, rows)
    if not linked:
        raise CorpusError(f"{corpus.files.corpus}: no link is within the training part")
    nearest = find_neighbours(directory, [corpus.texts[row] for row in rows]).nearest
    pairs: dict[tuple[int, int], float] = {}
    asking = {row for edge in linked for row in edge}
    for place, row in enumerate(rows.tolist()):
        if row in asking:
            near = nearest[place][:candidates]
            for other in rows[near[near != NO_VECTOR]].tolist():
                pairs.setdefault(_edge(row, other), float(_edge(row, other) in linked))
    row_of = {corpus.ids[row]: row for row in rows.tolist()}
    for path in corpus.files.pairs:
        for pair in read_pairs(path):
            if pair.source in row_of and pair.target in row_of:
                edge = _edge(row_of[pair.source], row_of[pair.target])
                pairs.setdefault(edge, float(pair.label))
    return _sample([_RowPair(a, b, label) for (a, b), label in pairs.items()])


def _sample(pairs: Sequence[_RowPair]) -> list[_RowPair]:
    """Draw at most PAIRS of these, of each label at least its part where there are as many."""
    order = np.random.default_rng(0).permutation(len(pairs)).tolist()
    matches = [pairs[n] for n in order if pairs[n].label > 0]
    others = [pairs[n] for n in order if pairs[n].label == 0]
    fewer = min(len(matches), max(round(MATCHES * PAIRS), PAIRS - len(others)))
    return [*matches[:fewer], *others[: PAIRS - fewer]]


def _links(corpus: RerankCorpus, rows: Int64) -> set[tuple[int, int]]:
    """Return the links between these rows, each as (lower, higher)."""
    row_of = {corpus.ids[row]: row for row in rows.tolist()}
    return {
        _edge(row_of[query], row_of[name])
        for query, judged in corpus.qrels.items()
        for name, relevance in judged.items()
        if relevance > 0 and query in row_of and name in row_of and query != name
    }


def _edge(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _validation_pairs(corpus: RerankCorpus, candidates: int) -> list[_RowPair]:
    rows = np.array(
        [row for row in np.flatnonzero(corpus.parts == VALID) if corpus.ids[row] in corpus.qrels],
        dtype=np.int64,
    )
    if not len(rows):
        raise CorpusError(f"{corpus.files.corpus}: no document of the validation part has links")
    chosen = np.random.default_rng(0).permutation(rows)[:VALID_QUERIES]
    names = [corpus.ids[row] for row in chosen]
    ranking = rank(lexical_system(corpus.texts), corpus.ids, names, chosen)
    return [
        _RowPair(
            int(row),
            int(other),
            float(corpus.qrels[corpus.ids[row]].get(corpus.ids[other], 0)),
            group,
            float(score),
        )
        for group, row in enumerate(chosen.tolist())
        for other, score in zip(
            ranking.rows[group, :candidates].tolist(),
            ranking.scores[group, :candidates].tolist(),
            strict=True,
        )
        if other != NO_VECTOR
    ]


def _tokenise(
    pairs: Sequence[_RowPair], corpus: RerankCorpus, reader: PairReader, observer: Observer
) -> PairTable:
    observer.started("filtering pairs of", len(pairs))
    read: dict[int, ReadText] = {}

    def text(row: int) -> ReadText:
        if row not in read:
            read[row] = reader.read(corpus.texts[row])
        return read[row]

    def made() -> Iterator[LabelledPair]:
        for number, pair in enumerate(pairs, start=1):
            tokens = reader.pair(text(pair.first), text(pair.second))
            yield LabelledPair(tokens, pair.label, pair.group, pair.score)
            if number % _PAIRS_A_STEP == 0:
                observer.advanced(documents=_PAIRS_A_STEP, tokens=_PAIRS_A_STEP * len(tokens))

    return make_pair_table(made())


def _key(corpus: RerankCorpus, checkpoint: RerankerCheckpoint, candidates: int) -> str:
    """Name what the tables of a corpus hang on."""
    digest = hashlib.sha256()
    tokenizer = checkpoint.files["tokenizer.json"]
    digest.update(f"{checkpoint.pair} {tokenizer} {candidates}".encode())
    digest.update(" ".join([*corpus.ids, *corpus.hashes]).encode())
    digest.update(corpus.parts.tobytes())
    digest.update(repr(sorted((q, sorted(d.items())) for q, d in corpus.qrels.items())).encode())
    for path in corpus.files.pairs:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
