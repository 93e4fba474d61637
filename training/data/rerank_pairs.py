"""The training pairs of a reranker: links and labelled pairs, close documents, and random pairs.

A reranker only sees candidates that another system ranked first: it learns to distinguish what
matches a document from its lexical neighbours within the training part. That alone is too hard for
a short training to learn that texts should be compared at all; random pairs, which are easy, teach
it that.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from encoder.reranker.checkpoint import RerankerCheckpoint
from encoder.reranker.pair_tokenizer import WORD, PairTokenizer, PairTokens, join_pair
from evaluation.judgements import PARTS, PairRows, Qrels, read_pairs, read_qrels
from evaluation.systems import lexical_system, rank
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from index.vectors.vector_index import NO_VECTOR
from training.data.files import CorpusFiles, part_in_name
from training.data.pair_files import (
    LEFT_OUT,
    TRAIN,
    VALID,
    check_equal_texts,
    choose_parts,
    count_seen,
    held_out_edges,
    place_pairs,
    read_labelled_pairs,
)
from training.data.sampling import PROBABLE_MATCH, find_neighbours
from training.recipe import RerankRecipe


@dataclass(frozen=True, slots=True)
class LabelledPairDataset:
    """P pairs as tokens.

    Attributes:
        texts: of each pair, the token ids of its first and its second text, uint32, without special
            tokens.
        labels: Float32[P], 1 for a match and 0 for none.
        groups: Int64[P], the corpus of a training pair, the query of a validation pair.
    """

    texts: Sequence[tuple[NDArray[Any], NDArray[Any]]]
    labels: Float32
    groups: Int64

    def __len__(self) -> int:
        return len(self.texts)

    def pair(
        self,
        row: int,
        start_token: int,
        end_token: int,
        *,
        swapped: bool = False,
        most: int | None = None,
    ) -> PairTokens:
        """Return one pair; swapped, its second text comes first; no more than `most` of each."""
        first, second = (side[:most].tolist() for side in self.texts[row])
        sides = (second, first) if swapped else (first, second)
        return join_pair(*sides, start_token, end_token)


ONE_LABEL = 'the recipe has pairs = "given", and not pairs of both labels are for training'


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
        qrels: its links, as judgements whose queries are documents; empty where it has none.
        pairs: labelled pairs by part.
        texts_seen: held-out texts that training sees too; 0 unless shared documents are allowed.
    """

    files: CorpusFiles
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    readings: tuple[str, ...]
    hashes: tuple[str, ...]
    parts: Int64
    qrels: Qrels
    pairs: Mapping[int, PairRows]
    texts_seen: int

    def valid_queries(self) -> Int64:
        """Return the rows of the validation part that have links."""
        rows = np.flatnonzero(self.parts == VALID).tolist()
        return np.array([row for row in rows if self.ids[row] in self.qrels], dtype=np.int64)

    def has_valid_pairs(self) -> bool:
        """Whether there are validation pairs of both labels."""
        labels = self.pairs[VALID].labels
        return bool(labels.any() and not labels.all())


def read_rerank_corpus(
    files: CorpusFiles, seed: int = 0, *, allow_shared: bool = False
) -> RerankCorpus:
    """Read a corpus with its links, labelled pairs and parts.

    Args:
        seed: of the parts of documents to which no file gives one.
        allow_shared: whether training may see documents of held-out pairs, and held-out texts.
    """
    documents = [item for item in read_corpus(files.corpus) if isinstance(item, Document)]
    ids = tuple(document.id for document in documents)
    hashes = tuple(document.content_hash.hex() for document in documents)
    labelled = read_labelled_pairs(files, ids, seed, allow_shared=allow_shared)
    parts = labelled.parts
    if files.splits is None:
        given = zip(hashes, parts.tolist(), strict=True)
        known = {text_hash: part for text_hash, part in given if part != LEFT_OUT}
        parts = choose_parts(parts, hashes, known, seed)
    if not allow_shared:
        check_equal_texts(
            (f"{name!r} of {files.corpus}", h, part)
            for name, h, part in zip(ids, hashes, parts.tolist(), strict=True)
        )
    pairs, _ = place_pairs(labelled, ids, parts)
    trained = {hashes[row] for row in np.flatnonzero(parts == TRAIN)}
    return RerankCorpus(
        files=files,
        ids=ids,
        texts=tuple(document.text for document in documents),
        readings=tuple(document.titled_text for document in documents),
        hashes=hashes,
        parts=parts,
        qrels=read_qrels(files.qrels) if files.qrels else {},
        pairs=pairs,
        texts_seen=count_seen(hashes, parts, pairs, trained),
    )


def check_rerank_files(corpora: Sequence[CorpusFiles], *, given: bool = False) -> None:
    """Check that corpora may have what a reranker learns from, without reading their documents.

    Args:
        given: whether it learns from labelled pairs alone.
    """
    for files in corpora:
        if given and len(_labels(files, TRAIN)) < 2:
            raise CorpusError(f"{files.corpus}: {ONE_LABEL}")
        if not files.qrels and not files.pairs:
            raise CorpusError(
                f"{files.corpus}: a reranker learns from links, in a file qrels.tsv, or from "
                "labelled pairs, in files pairs.train.jsonl and pairs.valid.jsonl"
            )
        if not files.qrels and True not in _labels(files, TRAIN):
            raise CorpusError(
                f"{files.corpus}: there are no links, and no pair for training has the label 1"
            )
    if not any(files.qrels or _labels(files, VALID) == {True, False} for files in corpora):
        raise CorpusError(
            f"{', '.join(str(files.corpus) for files in corpora)}: validation takes links, or "
            "pairs of both labels, in a file pairs.valid.jsonl"
        )


def _labels(files: CorpusFiles, part: int) -> set[bool]:
    """Return the labels of the pairs that may be of a part."""
    may_be = [path for path in files.pairs if part_in_name(path) in (None, PARTS[part])]
    return {pair.label for path in may_be for pair in read_pairs(path)}


QUERIES = "nDCG@10 of validation queries, their first lexical candidates in the reranker's order"
LABELLED = "AUC of the validation pairs, by the reranker alone"
VALID_QUERIES = 32  # of a corpus that validation reranks, at most
VALID_PAIRS = 1_000  # of a corpus that validation scores, at most
PAIRS = 20_000  # of a corpus for training, at most
MATCHES = 0.4  # share of matches among them, if there are enough
OTHERS = 8  # pairs that do not match for each that does, at most

Edge = tuple[int, int]


class RowPair(NamedTuple):
    """Two rows of a corpus, their label, and of a validation pair the number of its query."""

    first: int
    second: int
    label: float
    group: int = 0


def training_pairs(corpus: RerankCorpus, recipe: RerankRecipe) -> list[RowPair]:
    """Sample the pairs of the training part.

    Links and pairs of label 1 match. Pairs of label 0 do not, nor do lexical neighbours and random
    documents: where only labelled pairs are known, neighbours that probably match are left out.
    """
    rows = np.flatnonzero(corpus.parts == TRAIN)
    labelled = _by_label(corpus.pairs[TRAIN])
    if recipe.pairs == "given":
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
    near = _near(corpus, rows, linked, recipe.candidates) - linked - different - held_out
    return _sample(linked, different, near, held_out, recipe.random)


def _by_label(pairs: PairRows) -> dict[bool, set[Edge]]:
    edges: dict[bool, set[Edge]] = {False: set(), True: set()}
    for source, target, label in zip(pairs.sources, pairs.targets, pairs.labels, strict=True):
        edges[bool(label)].add(_edge(int(source), int(target)))
    return edges


def _near(corpus: RerankCorpus, rows: Int64, linked: set[Edge], candidates: int) -> set[Edge]:
    """Pair the documents that have a match with their lexical neighbours in the training part."""
    found = find_neighbours([corpus.texts[row] for row in rows])
    likely = np.inf if corpus.qrels else PROBABLE_MATCH
    near = np.where(found.similarities < likely, found.nearest, NO_VECTOR)
    asking = {row for edge in linked for row in edge}
    return {
        _edge(row, int(rows[other]))
        for place, row in enumerate(rows.tolist())
        if row in asking
        for other in near[place][:candidates].tolist()
        if other != NO_VECTOR
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
    """Return the best figure that validation allows: of queries with links, else of pairs."""
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
    row_of = {name: row for row, name in enumerate(corpus.ids)}
    return [
        RowPair(row_of[name], row_of[other], float(corpus.qrels[name].get(other, 0)), group)
        for group, name in enumerate(names)
        for other in islice(run[name], candidates)
    ]


_PAIRS_A_STEP = 64
GROUPS = 100_000  # of validation pairs, of a corpus


@dataclass(frozen=True, slots=True)
class RerankData:
    """Pairs to train on, and pairs that a figure is measured on; see `LabelledPairDataset`."""

    training: LabelledPairDataset
    validation: LabelledPairDataset
    figure: str


def prepare_rerank_data(
    corpora: Sequence[RerankCorpus],
    checkpoint: RerankerCheckpoint,
    recipe: RerankRecipe,
    progress: Progress,
) -> RerankData:
    """Choose and tokenise the pairs of corpora."""
    reader = PairTokenizer(checkpoint)
    figure = choose_figure(corpora)
    training = LabelledPairDataset([], np.empty(0, np.float32), np.empty(0, np.int64))
    validation = training
    for number, corpus in enumerate(corpora):
        train = [pair._replace(group=number) for pair in training_pairs(corpus, recipe)]
        valid = [
            pair._replace(group=pair.group + number * GROUPS)
            for pair in validation_pairs(corpus, figure, recipe.candidates)
        ]
        training = _with_pairs(training, train, corpus, reader, progress)
        validation = _with_pairs(validation, valid, corpus, reader, progress)
    if not validation.labels.any():
        raise CorpusError(
            f"no link of a validation query is among its first {recipe.candidates} lexical "
            "candidates: there is nothing to validate on"
        )
    return RerankData(training, validation, figure)


def rerank_fingerprint(corpora: Sequence[RerankCorpus], checkpoint: RerankerCheckpoint) -> str:
    """Return the fingerprint of the data and the checkpoint of a run."""
    digest = hashlib.sha256(checkpoint.fingerprint.encode())
    for corpus in corpora:
        digest.update(hashlib.sha256("\0".join(corpus.readings).encode()).digest())
        digest.update(" ".join([*corpus.ids, *corpus.hashes]).encode())
        digest.update(corpus.parts.tobytes())
        digest.update(
            repr(sorted((q, sorted(d.items())) for q, d in corpus.qrels.items())).encode()
        )
        for pairs in corpus.pairs.values():
            digest.update(pairs.sources.tobytes() + pairs.targets.tobytes())
            digest.update(pairs.labels.tobytes())
    return digest.hexdigest()


def _with_pairs(
    table: LabelledPairDataset,
    pairs: Sequence[RowPair],
    corpus: RerankCorpus,
    reader: PairTokenizer,
    progress: Progress,
) -> LabelledPairDataset:
    """Return a data set with the tokens of more pairs, those of a corpus."""
    progress.started("preparing pairs", len(pairs), unit="pairs")
    read = cache(lambda row: reader.read(corpus.readings[row]))
    texts = [*table.texts]
    for number, pair in enumerate(pairs, start=1):
        tokens = reader.pair(read(pair.first), read(pair.second))
        ids, words = tokens.input_ids.astype(np.uint32), tokens.special == WORD
        first, second = (ids[words & (tokens.token_types == side)] for side in (0, 1))
        texts.append((first, second))
        if number % _PAIRS_A_STEP == 0:
            progress.advanced(_PAIRS_A_STEP, tokens=_PAIRS_A_STEP * len(tokens))
    labels = np.array([pair.label for pair in pairs], dtype=np.float32)
    groups = np.array([pair.group for pair in pairs], dtype=np.int64)
    return LabelledPairDataset(
        texts, np.concatenate([table.labels, labels]), np.concatenate([table.groups, groups])
    )
