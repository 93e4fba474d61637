"""The training pairs of a reranker: links and labelled pairs, close documents, and random pairs.

A reranker only sees candidates that another system ranked first: it learns to distinguish what
matches a document from its lexical neighbours within the training part. That alone is too hard for
a short training to learn that texts should be compared at all; random pairs, which are easy, teach
it that.
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
from evaluation.judgements import PairRows
from evaluation.systems import lexical_system, rank
from index.errors import CorpusError
from index.progress import Progress
from index.vectors.vector_index import NO_VECTOR
from training.data.labelled_pairs import (
    LabelledPair,
    LabelledPairDataset,
    join_tables,
    make_pair_table,
    read_pair_table,
    write_pair_table,
)
from training.data.neighbours import find_neighbours
from training.data.pair_files import held_out_edges
from training.data.rerank_corpus import ONE_LABEL, RerankCorpus
from training.data.sampling import PROBABLE_MATCH
from training.data.splits import TRAIN, VALID

QUERIES = "nDCG@10 of validation queries, their first lexical candidates in the reranker's order"
LABELLED = "AUC of the validation pairs, by the reranker alone"
VALID_QUERIES = 32  # of a corpus that validation reranks, at most
VALID_PAIRS = 1_000  # of a corpus that validation scores, at most
PAIRS = 20_000  # of a corpus for training, at most
MATCHES = 0.4  # share of matches among them, if there are enough
OTHERS = 8  # pairs that do not match for each that does, at most

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PairKinds:
    """Which pairs that do not match are sampled.

    Attributes:
        candidates: number of lexical neighbours of each document with a match, at most those that
            `find_neighbours` returns. Validation reranks as many.
        random: share of random pairs, of documents sampled as often as they occur in links, so
            that no text by itself predicts a match.
        given: whether the labelled pairs of the training part, all of them, are the only ones.
    """

    candidates: int
    random: float = 0.5
    given: bool = False


@dataclass(frozen=True, slots=True)
class RowPair:
    """Two rows of a corpus; the others as of `LabelledPair`."""

    first: int
    second: int
    label: float
    group: int = 0
    score: float = 0.0


def training_pairs(corpus: RerankCorpus, kinds: PairKinds, directory: Path) -> list[RowPair]:
    """Sample the pairs of the training part; neighbours are kept in a directory.

    Links and pairs of label 1 match. Pairs of label 0 do not, nor do lexical neighbours and random
    documents: where only labelled pairs are known, neighbours that probably match are left out.

    Raises:
        CorpusError: nothing within it matches, pairs of one label are given alone, or an extra is
            not installed.
    """
    rows = np.flatnonzero(corpus.parts == TRAIN)
    labelled = _by_label(corpus.pairs[TRAIN])
    if kinds.given:
        if not all(labelled.values()):
            raise CorpusError(f"{corpus.files.corpus}: {ONE_LABEL}")
        return [
            RowPair(a, b, float(label)) for label in labelled for a, b in sorted(labelled[label])
        ]
    held_out = held_out_edges(corpus.pairs)
    linked = (_links(corpus, rows) - held_out) | labelled[True]
    if not linked:
        raise CorpusError(f"{corpus.files.corpus}: no link or match is within the training part")
    different = labelled[False] - linked
    near = _near(corpus, rows, linked, kinds, directory) - linked - different - held_out
    return _sample(linked, different, near, held_out, kinds.random)


def _by_label(pairs: PairRows) -> dict[bool, set[Edge]]:
    edges: dict[bool, set[Edge]] = {False: set(), True: set()}
    for source, target, label in zip(pairs.sources, pairs.targets, pairs.labels, strict=True):
        edges[bool(label)].add(_edge(int(source), int(target)))
    return edges


def _near(
    corpus: RerankCorpus, rows: Int64, linked: set[Edge], kinds: PairKinds, directory: Path
) -> set[Edge]:
    """Pair the documents that have a match with their lexical neighbours in the training part."""
    found = find_neighbours(directory, [corpus.texts[row] for row in rows])
    likely = np.inf if corpus.qrels else PROBABLE_MATCH
    near = np.where(found.similarities < likely, found.nearest, NO_VECTOR)
    asking = {row for edge in linked for row in edge}
    return {
        _edge(row, other)
        for place, row in enumerate(rows.tolist())
        if row in asking
        for other in _rows_of(rows, near[place][: kinds.candidates])
    }


def _sample(
    linked: set[Edge], different: set[Edge], near: set[Edge], held_out: set[Edge], random: float
) -> list[RowPair]:
    """Sample at most PAIRS: matches, and others, of which a share is random.

    Of those that are not random, pairs that are known to be different come before near ones.
    """
    chance = np.random.default_rng(0)
    hard_ones = len(different) + len(near)
    matches = _some(linked, max(round(MATCHES * PAIRS), PAIRS - hard_ones), chance)
    others = min(PAIRS - len(matches), OTHERS * len(matches))
    most = round((1.0 - random) * others)
    hard = _some(different, most, chance)
    hard += _some(near, most - len(hard), chance)
    easy = _random_pairs(sorted(linked), round(random * others), chance)
    easy -= linked | different | near | held_out
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


def choose_figure(corpora: Sequence[RerankCorpus]) -> str:
    """Return the best figure that validation allows: of queries with links, else of pairs.

    Raises:
        CorpusError: it allows neither.
    """
    if any(len(corpus.valid_queries()) for corpus in corpora):
        return QUERIES
    if any(corpus.has_valid_pairs() for corpus in corpora):
        return LABELLED
    names = ", ".join(str(corpus.files.corpus) for corpus in corpora)
    raise CorpusError(
        f"{names}: no document of the validation part has links, and no labelled pairs of both "
        "labels are in it: name such pairs in a file pairs.valid.jsonl, or keep a tenth of all "
        "pairs with --allow-shared-documents"
    )


def validation_pairs(corpus: RerankCorpus, figure: str, candidates: int) -> list[RowPair]:
    """Return what a figure is measured on; nothing if the corpus does not have it.

    That is the first lexical candidates of some queries of the validation part, or some labelled
    pairs, as many of each label if there are enough.
    """
    if figure == QUERIES:
        return _candidates(corpus, candidates)
    pairs = corpus.pairs[VALID]
    if not corpus.has_valid_pairs():
        return []
    chance = np.random.default_rng(0)
    chosen = [
        row
        for label in (True, False)
        for row in chance.permutation(np.flatnonzero(pairs.labels == label))[: VALID_PAIRS // 2]
    ]
    return [
        RowPair(int(pairs.sources[row]), int(pairs.targets[row]), float(pairs.labels[row]))
        for row in chosen
    ]


def _candidates(corpus: RerankCorpus, candidates: int) -> list[RowPair]:
    rows = corpus.valid_queries()
    if not len(rows):
        return []
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
_FORMAT = 4


@dataclass(frozen=True, slots=True)
class RerankData:
    """Pairs to train on, and pairs that a figure is measured on; see `LabelledPairDataset`."""

    training: LabelledPairDataset
    validation: LabelledPairDataset
    figure: str


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
        CorpusError: an extra is not installed, nothing within the training part of a corpus
            matches, or nothing is for validation.
    """
    work.mkdir(parents=True, exist_ok=True)
    reader = PairTokenizer(checkpoint)
    figure = choose_figure(corpora)
    tables: list[tuple[LabelledPairDataset, LabelledPairDataset]] = []
    for number, corpus in enumerate(corpora):
        key = _key(corpus, checkpoint, kinds, figure)
        paths = [work / f"{key}-{part}.npz" for part in ("train", "valid")]
        if not all(path.exists() for path in paths):
            pairs = training_pairs(corpus, kinds, work / f"{key}-neighbours")
            judged = validation_pairs(corpus, figure, kinds.candidates)
            for path, some in zip(paths, (pairs, judged), strict=True):
                write_pair_table(path, _tokenise(some, corpus, reader, progress))
        train, valid = (read_pair_table(path) for path in paths)
        groups = np.full(len(train), number, dtype=np.int64)
        tables.append(
            (replace(train, groups=groups), replace(valid, groups=valid.groups + number * 100_000))
        )
    training, validation = (join_tables(some) for some in zip(*tables, strict=True))
    if not validation.labels.any():
        raise CorpusError(
            f"no link of a validation query is among its first {kinds.candidates} lexical "
            "candidates: there is nothing to validate on"
        )
    return RerankData(training, validation, figure)


def rerank_fingerprint(corpora: Sequence[RerankCorpus], checkpoint: RerankerCheckpoint) -> str:
    """Return the fingerprint of the data and the checkpoint of a run."""
    figure = choose_figure(corpora)
    keys = [_key(corpus, checkpoint, PairKinds(0), figure) for corpus in corpora]
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


def _key(
    corpus: RerankCorpus, checkpoint: RerankerCheckpoint, kinds: PairKinds, figure: str
) -> str:
    """Return a digest of everything that the tables of a corpus depend on."""
    digest = hashlib.sha256()
    tokenizer = checkpoint.files["tokenizer.json"]
    digest.update(f"{_FORMAT} {checkpoint.pair} {tokenizer} {kinds} {figure}".encode())
    digest.update(hashlib.sha256("\0".join(corpus.readings).encode()).digest())
    digest.update(" ".join([*corpus.ids, *corpus.hashes]).encode())
    digest.update(corpus.parts.tobytes())
    digest.update(repr(sorted((q, sorted(d.items())) for q, d in corpus.qrels.items())).encode())
    for pairs in corpus.pairs.values():
        digest.update(pairs.sources.tobytes() + pairs.targets.tobytes() + pairs.labels.tobytes())
    return digest.hexdigest()[:16]
