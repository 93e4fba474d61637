"""The training pairs of a reranker: links and labelled pairs, close documents, and random pairs.

A reranker only sees candidates that another system ranked first: it learns to distinguish what
matches a document from its lexical neighbours within the training part. That alone is too hard for
a short training to learn that texts should be compared at all; random pairs, which are easy, teach
it that.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from encoder.reranker.checkpoint import RerankerCheckpoint
from encoder.reranker.pair_tokenizer import WORD, PairTokenizer, PairTokens, join_pair
from evaluation.judgements import PairRows
from evaluation.systems import lexical_system, rank
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from index.vectors.vector_index import NO_VECTOR
from training.data.corpus import KnownCorpus, data_fingerprint, read_training_data
from training.data.files import CorpusFiles
from training.data.pair_files import TRAIN, VALID, held_out_edges
from training.data.sampling import PROBABLE_MATCH, find_neighbours
from training.recipe import RerankRecipe


@dataclass(frozen=True, slots=True)
class LabelledPairDataset:
    """P pairs of one corpus as tokens.

    Attributes:
        texts: of each pair, the token ids of its first and its second text, uint32, without special
            tokens.
        labels: Float32[P], 1 for a match and 0 for none.
        queries: Int64[P], the number of the query that a validation pair is of.
    """

    texts: Sequence[tuple[NDArray[Any], NDArray[Any]]]
    labels: Float32
    queries: Int64

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


@dataclass(frozen=True, slots=True)
class WholeTexts:
    """N documents; neighbours are found by their texts, and pairs are read with their titles.

    Attributes:
        documents: N.
        ids: N document ids.
        hashes: N SHA-256 of the texts, in hex.
    """

    documents: tuple[Document, ...]
    ids: tuple[str, ...]
    hashes: tuple[str, ...]


RerankCorpus = KnownCorpus[WholeTexts]


def read_rerank_corpora(
    corpora: Sequence[CorpusFiles], seed: int = 0, *, allow_shared: bool = False
) -> tuple[RerankCorpus, ...]:
    """Read corpora with their texts; for the arguments see `read_training_data`."""
    read = [(files, _read_texts(files.corpus)) for files in corpora]
    return read_training_data(read, seed, allow_shared=allow_shared)


def _read_texts(corpus: Path) -> WholeTexts:
    documents = tuple(item for item in read_corpus(corpus) if isinstance(item, Document))
    ids = tuple(document.id for document in documents)
    return WholeTexts(documents, ids, tuple(each.content_hash.hex() for each in documents))


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
    query: int = 0


def training_pairs(corpus: RerankCorpus, recipe: RerankRecipe) -> list[RowPair]:
    """Sample the pairs of the training part.

    Links and pairs of label 1 match. Pairs of label 0 do not, nor do lexical neighbours and random
    documents: where only labelled pairs are known, neighbours that probably match are left out.
    """
    labelled = _by_label(corpus.pairs[TRAIN])
    if recipe.pairs == "given":
        if not all(labelled.values()):
            raise CorpusError(
                f'{corpus.files.corpus}: the recipe has pairs = "given", and not pairs of both '
                "labels are for training"
            )
        return [
            RowPair(a, b, float(label)) for label in labelled for a, b in sorted(labelled[label])
        ]
    held_out = held_out_edges(corpus.pairs)
    links = {_edge(row, int(other)) for row, others in corpus.links.items() for other in others}
    linked = links | labelled[True]
    if not linked:
        raise CorpusError(
            f"{corpus.files.corpus}: no link (qrels.tsv) and no match (pairs.train.jsonl) is "
            "within the training part"
        )
    different = labelled[False] - linked
    near = _near(corpus, linked, recipe.candidates) - linked - different - held_out
    return _sample(linked, different, near, held_out, recipe.random)


def _by_label(pairs: PairRows) -> dict[bool, set[Edge]]:
    edges: dict[bool, set[Edge]] = {False: set(), True: set()}
    for source, target, label in zip(pairs.sources, pairs.targets, pairs.labels, strict=True):
        edges[bool(label)].add(_edge(int(source), int(target)))
    return edges


def _near(corpus: RerankCorpus, linked: set[Edge], candidates: int) -> set[Edge]:
    """Pair the documents that have a match with their lexical neighbours in the training part."""
    rows = corpus.rows(TRAIN)
    found = find_neighbours([corpus.texts.documents[row].text for row in rows])
    likely = np.inf if corpus.files.qrels else PROBABLE_MATCH
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


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)


def choose_figure(corpora: Sequence[RerankCorpus]) -> str:
    """Return the best figure that validation allows: of queries with links, else of pairs."""
    if any(corpus.judgements for corpus in corpora):
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
        return _candidates(corpus, candidates) if corpus.judgements else []
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
    row_of = {name: row for row, name in enumerate(corpus.texts.ids)}
    rows = np.array(sorted(row_of[name] for name in corpus.judgements), dtype=np.int64)
    chosen = np.random.default_rng(0).permutation(rows)[:VALID_QUERIES]
    names = [corpus.texts.ids[row] for row in chosen]
    lexical = lexical_system([document.text for document in corpus.texts.documents])
    run = rank(lexical, corpus.texts.ids, names, chosen)
    return [
        RowPair(row_of[name], row_of[other], float(corpus.judgements[name].get(other, 0)), query)
        for query, name in enumerate(names)
        for other in islice(run[name], candidates)
    ]


_PAIRS_A_STEP = 64


@dataclass(frozen=True, slots=True)
class RerankData:
    """Pairs of each corpus to train on, and pairs that a figure is measured on, maybe none."""

    training: Sequence[LabelledPairDataset]
    validation: Sequence[LabelledPairDataset]
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
    training, validation = [], []
    for corpus in corpora:
        pairs = training_pairs(corpus, recipe)
        training.append(_tokenise(pairs, corpus, reader, progress))
        pairs = validation_pairs(corpus, figure, recipe.candidates)
        validation.append(_tokenise(pairs, corpus, reader, progress))
    if not any(table.labels.any() for table in validation):
        raise CorpusError(
            f"no link of a validation query is among its first {recipe.candidates} lexical "
            "candidates: there is nothing to validate on"
        )
    return RerankData(training, validation, figure)


def rerank_fingerprint(corpora: Sequence[RerankCorpus], checkpoint: RerankerCheckpoint) -> str:
    """Return the fingerprint of the data and the checkpoint of a run."""
    digest = hashlib.sha256(f"{checkpoint.fingerprint} {data_fingerprint(corpora)}".encode())
    for corpus in corpora:
        titles = (document.title for document in corpus.texts.documents)
        digest.update("\0".join(titles).encode())
    return digest.hexdigest()


def _tokenise(
    pairs: Sequence[RowPair], corpus: RerankCorpus, reader: PairTokenizer, progress: Progress
) -> LabelledPairDataset:
    progress.started("preparing pairs", len(pairs), unit="pairs")
    read = cache(lambda row: reader.read(corpus.texts.documents[row].titled_text))
    texts = []
    for number, pair in enumerate(pairs, start=1):
        tokens = reader.pair(read(pair.first), read(pair.second))
        ids, words = tokens.input_ids.astype(np.uint32), tokens.special == WORD
        first, second = (ids[words & (tokens.token_types == side)] for side in (0, 1))
        texts.append((first, second))
        if number % _PAIRS_A_STEP == 0:
            progress.advanced(_PAIRS_A_STEP, tokens=_PAIRS_A_STEP * len(tokens))
    labels = np.array([pair.label for pair in pairs], dtype=np.float32)
    queries = np.array([pair.query for pair in pairs], dtype=np.int64)
    return LabelledPairDataset(texts, labels, queries)
