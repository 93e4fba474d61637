"""The training pairs of a reranker: links, close documents without a link, and random pairs.

A reranker only sees candidates that another system ranked first: it learns to distinguish the links
of a document from its lexical neighbours within the training part. That alone is too hard for a
short training to learn that texts should be compared at all; random pairs, which are easy, teach it
that.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder.arrays import Int64
from encoder.reranker.checkpoint import RerankerCheckpoint
from encoder.reranker.pair_tokenizer import PairTokenizer
from encoder.reranker.sentence_ranking import SentenceGraphText
from evaluation.judgements import Qrels, read_pairs, read_qrels, read_splits
from evaluation.systems import lexical_system, rank
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from index.vectors.vector_index import NO_VECTOR
from training.data.files import CorpusFiles
from training.data.labelled_pairs import (
    LabelledPair,
    LabelledPairDataset,
    join_tables,
    make_pair_table,
    read_pair_table,
    write_pair_table,
)
from training.data.neighbours import find_neighbours
from training.data.splits import TRAIN, VALID, check_equal_texts, choose_parts, given_parts

VALID_QUERIES = 32  # of a corpus that validation reranks, at most
PAIRS = 20_000  # of a corpus for training, at most
MATCHES = 0.4  # share of matches among them, if there are enough
OTHERS = 8  # pairs without a link for each with one, at most

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RerankCorpus:
    """One corpus of N documents.

    Attributes:
        files: where it came from.
        ids: N document ids.
        texts: N texts, by whose words neighbours are found.
        readings: N texts with their titles, as they are read.
        hashes: N SHA-256 of the texts, in hex.
        parts: Int64[N], TRAIN, VALID, TEST or LEFT_OUT.
        qrels: its links, as judgements whose queries are documents.
    """

    files: CorpusFiles
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    readings: tuple[str, ...]
    hashes: tuple[str, ...]
    parts: Int64
    qrels: Qrels


@dataclass(frozen=True, slots=True)
class PairKinds:
    """Which pairs without a link are sampled.

    Attributes:
        candidates: number of lexical neighbours of each document with links, at most those that
            `find_neighbours` returns. Validation reranks as many.
        random: share of random pairs, of documents sampled as often as they occur in links, so
            that no text by itself predicts a match.
    """

    candidates: int
    random: float = 0.5


@dataclass(frozen=True, slots=True)
class RowPair:
    """Two rows of a corpus; the others as of `LabelledPair`."""

    first: int
    second: int
    label: float
    group: int = 0
    score: float = 0.0


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
    check_equal_texts(
        (f"{name!r} of {files.corpus}", h, part)
        for name, h, part in zip(ids, hashes, parts.tolist(), strict=True)
    )
    texts = tuple(document.text for document in documents)
    readings = tuple(document.titled_text for document in documents)
    return RerankCorpus(files, ids, texts, readings, hashes, parts, read_qrels(files.qrels))


def training_pairs(corpus: RerankCorpus, kinds: PairKinds, directory: Path) -> list[RowPair]:
    """Sample the pairs of the training part; neighbours are kept in a directory.

    Raises:
        CorpusError: there is no link within it, or an extra is not installed.
    """
    rows = np.flatnonzero(corpus.parts == TRAIN)
    linked = _links(corpus, rows)
    if not linked:
        raise CorpusError(f"{corpus.files.corpus}: no link is within the training part")
    nearest = find_neighbours(directory, [corpus.texts[row] for row in rows]).nearest
    asking = {row for edge in linked for row in edge}
    near = {
        _edge(row, other)
        for place, row in enumerate(rows.tolist())
        if row in asking
        for other in _rows_of(rows, nearest[place][: kinds.candidates])
    }
    for (a, b), label in _labelled(corpus, rows).items():
        (linked if label else near).add((a, b))
    return _sample(linked, near - linked, kinds.random)


def _labelled(corpus: RerankCorpus, rows: Int64) -> dict[Edge, bool]:
    """Return the labelled pairs between these rows."""
    row_of = {corpus.ids[row]: row for row in rows.tolist()}
    return {
        _edge(row_of[pair.source], row_of[pair.target]): pair.label > 0
        for path in corpus.files.pairs
        for pair in read_pairs(path)
        if pair.source in row_of and pair.target in row_of
    }


def _sample(linked: set[Edge], near: set[Edge], random: float) -> list[RowPair]:
    """Sample at most PAIRS: matches, and of the others near ones and random ones by their share."""
    chance = np.random.default_rng(0)
    matches = _some(linked, max(round(MATCHES * PAIRS), PAIRS - len(near)), chance)
    others = min(PAIRS - len(matches), OTHERS * len(matches))
    hard = _some(near, round((1.0 - random) * others), chance)
    easy = _random_pairs(sorted(linked), round(random * others), chance) - linked - near
    return [
        *(RowPair(a, b, 1.0) for a, b in matches),
        *(RowPair(a, b, 0.0) for a, b in [*hard, *sorted(easy)]),
    ]


def _rows_of(rows: Int64, places: Int64) -> list[int]:
    found: list[int] = rows[places[places != NO_VECTOR]].tolist()
    return found


def _some(edges: set[Edge], most: int, chance: np.random.Generator) -> list[Edge]:
    ordered = sorted(edges)
    return [ordered[place] for place in chance.permutation(len(ordered))[:most].tolist()]


def _random_pairs(linked: Sequence[Edge], number: int, chance: np.random.Generator) -> set[Edge]:
    """Pair the ends of random links, so that documents occur as often as in links."""
    ends = np.array(linked, dtype=np.int64).ravel()
    chosen = chance.choice(ends, (number, 2)).tolist()
    return {_edge(a, b) for a, b in chosen if a != b}


def _links(corpus: RerankCorpus, rows: Int64) -> set[Edge]:
    """Return the links between these rows, each as (lower, higher)."""
    row_of = {corpus.ids[row]: row for row in rows.tolist()}
    return {
        _edge(row_of[query], row_of[name])
        for query, judged in corpus.qrels.items()
        for name, relevance in judged.items()
        if relevance > 0 and query in row_of and name in row_of and query != name
    }


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)


def validation_pairs(corpus: RerankCorpus, candidates: int) -> list[RowPair]:
    """Return the first lexical candidates of some queries of the validation part.

    Raises:
        CorpusError: none has a link.
    """
    rows = np.array(
        [row for row in np.flatnonzero(corpus.parts == VALID) if corpus.ids[row] in corpus.qrels],
        dtype=np.int64,
    )
    if not len(rows):
        raise CorpusError(f"{corpus.files.corpus}: no document of the validation part has links")
    chosen = np.random.default_rng(0).permutation(rows)[:VALID_QUERIES]
    names = [corpus.ids[row] for row in chosen]
    run = rank(lexical_system(corpus.texts), corpus.ids, names, chosen)
    return [
        RowPair(
            int(row),
            int(other),
            float(corpus.qrels[corpus.ids[row]].get(corpus.ids[other], 0)),
            group,
            float(score),
        )
        for group, row in enumerate(chosen.tolist())
        for other, score in zip(
            run.rows[group, :candidates].tolist(),
            run.scores[group, :candidates].tolist(),
            strict=True,
        )
        if other != NO_VECTOR
    ]


_PAIRS_A_STEP = 64
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class RerankData:
    """Pairs to train on, and candidates of validation queries; see `LabelledPairDataset`."""

    training: LabelledPairDataset
    validation: LabelledPairDataset


def prepare_rerank_data(
    corpora: Sequence[RerankCorpus],
    checkpoint: RerankerCheckpoint,
    kinds: PairKinds,
    work: Path,
    progress: Progress,
) -> RerankData:
    """Tokenise the pairs of corpora, or read the tables stored before.

    Args:
        corpora: at least one.
        checkpoint: that reads the pairs.
        kinds: of pairs.
        work: where neighbours and tables are stored.
        progress: is notified of pairs, counted as documents.

    Raises:
        CorpusError: an extra is not installed, or a corpus has no link within a part.
    """
    work.mkdir(parents=True, exist_ok=True)
    reader = PairTokenizer(checkpoint)
    tables: list[tuple[LabelledPairDataset, LabelledPairDataset]] = []
    for number, corpus in enumerate(corpora):
        key = _key(corpus, checkpoint, kinds)
        paths = [work / f"{key}-{part}.npz" for part in ("train", "valid")]
        if not all(path.exists() for path in paths):
            pairs = training_pairs(corpus, kinds, work / f"{key}-neighbours")
            judged = validation_pairs(corpus, kinds.candidates)
            for path, some in zip(paths, (pairs, judged), strict=True):
                write_pair_table(path, _tokenise(some, corpus, reader, progress))
        train, valid = (read_pair_table(path) for path in paths)
        groups = np.full(len(train), number, dtype=np.int64)
        tables.append(
            (replace(train, groups=groups), replace(valid, groups=valid.groups + number * 100_000))
        )
    training, validation = zip(*tables, strict=True)
    return RerankData(join_tables(training), join_tables(validation))


def rerank_fingerprint(corpora: Sequence[RerankCorpus], checkpoint: RerankerCheckpoint) -> str:
    """Return the fingerprint of the data and the checkpoint of a run."""
    keys = [_key(corpus, checkpoint, PairKinds(0)) for corpus in corpora]
    return hashlib.sha256(" ".join([checkpoint.fingerprint, *keys]).encode()).hexdigest()


def _tokenise(
    pairs: Sequence[RowPair], corpus: RerankCorpus, reader: PairTokenizer, progress: Progress
) -> LabelledPairDataset:
    progress.started("preparing pairs", len(pairs), unit="pairs")
    read: dict[int, SentenceGraphText] = {}

    def text(row: int) -> SentenceGraphText:
        if row not in read:
            read[row] = reader.read(corpus.readings[row])
        return read[row]

    def made() -> Iterator[LabelledPair]:
        for number, pair in enumerate(pairs, start=1):
            tokens = reader.pair(text(pair.first), text(pair.second))
            yield LabelledPair(tokens, pair.label, pair.group, pair.score)
            if number % _PAIRS_A_STEP == 0:
                progress.advanced(_PAIRS_A_STEP, tokens=_PAIRS_A_STEP * len(tokens))

    return make_pair_table(made())


def _key(corpus: RerankCorpus, checkpoint: RerankerCheckpoint, kinds: PairKinds) -> str:
    """Return a digest of everything that the tables of a corpus depend on."""
    digest = hashlib.sha256()
    tokenizer = checkpoint.files["tokenizer.json"]
    digest.update(f"{_FORMAT} {checkpoint.pair} {tokenizer} {kinds}".encode())
    digest.update(hashlib.sha256("\0".join(corpus.readings).encode()).digest())
    digest.update(" ".join([*corpus.ids, *corpus.hashes]).encode())
    digest.update(corpus.parts.tobytes())
    digest.update(repr(sorted((q, sorted(d.items())) for q, d in corpus.qrels.items())).encode())
    for path in corpus.files.pairs:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
