"""Sampling of the batches of training steps: functions of a random generator and nothing else.

Every batch is of one corpus: a negative from another corpus teaches which corpus a document is of.
It is chosen by the square root of how much it has to sample from, so that a small corpus
counts beside a large one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from encoder.arrays import Bool, Float32, Int64
from index.errors import CorpusError
from training.data.batch_specs import (
    CandidateBatch,
    DocumentsBatch,
    DocumentSlice,
    PairBatch,
    SimilarityBatch,
    cut_blocks,
)
from training.data.corpus import TrainingCorpus
from training.data.neighbours import Neighbours
from training.data.splits import TRAIN

PROBABLE_MATCH = 0.5  # lexical similarity from which an unjudged document is not used as a negative
NEIGHBOURHOOD = 8  # documents of one neighbourhood in a batch of neighbours


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """A corpus to sample from.

    Attributes:
        number: of its block archive.
        corpus: rows, links and pairs.
        rows: Int64[M], its documents of the training part, ascending.
        neighbours: of those M documents, by their places in `rows`.
        max_blocks: blocks of a document that training reads.
        section_starts: of some rows, the blocks that the document's own sections begin with.
    """

    number: int
    corpus: TrainingCorpus
    rows: Int64
    neighbours: Neighbours
    max_blocks: int
    section_starts: Mapping[int, Int64] = field(default_factory=dict)

    def part(
        self, row: int, places: Int64 | None = None, section: int = 0, sections: int = 1
    ) -> DocumentSlice:
        """Return a document, some of its blocks, or one of its sections."""
        return DocumentSlice(
            self.number, int(self.corpus.encoded.rows[row]), places, section, sections
        )

    def blocks(self, row: int) -> int:
        """Return how many blocks of a document are read."""
        start, stop = self.corpus.encoded.archive.span(int(self.corpus.encoded.rows[row]))
        return min(stop - start, self.max_blocks)

    def near(self, row: int) -> Int64:
        """Return the rows of the lexical neighbours of a document, nearest first."""
        places = self.neighbours.nearest[np.searchsorted(self.rows, row)]
        near: Int64 = self.rows[places[places >= 0]]
        return near


def new_training_source(
    number: int, corpus: TrainingCorpus, neighbours: Neighbours, max_blocks: int
) -> TrainingSource:
    """Make the source of a corpus; `neighbours` are those of its training part, in order."""
    return TrainingSource(number, corpus, corpus.rows(TRAIN), neighbours, max_blocks)


def sample_documents(
    sources: Sequence[TrainingSource], size: int, random: np.random.Generator
) -> DocumentsBatch:
    """Sample documents of all corpora, none twice."""
    ends = np.cumsum([len(source.rows) for source in sources])
    parts = []
    # Not a permutation of all: a step must not take longer in a larger corpus.
    chosen = random.choice(ends[-1], min(size, int(ends[-1])), replace=False)
    for place in chosen.tolist():
        number = int(np.searchsorted(ends, place, side="right"))
        source = sources[number]
        parts.append(source.part(source.rows[place - ends[number]]))
    return DocumentsBatch(tuple(parts))


def sample_pairs(
    sources: Sequence[TrainingSource], size: int, random: np.random.Generator
) -> PairBatch:
    """Sample size / 2 labelled pairs.

    Raises:
        CorpusError: no corpus has a pair for training.
    """
    source = choose_source(sources, [len(s.corpus.pairs.labels) for s in sources], "pairs", random)
    pairs = source.corpus.pairs
    chosen = random.permutation(len(pairs.labels))[: max(1, size // 2)]
    return PairBatch(
        tuple(source.part(row) for row in pairs.sources[chosen]),
        tuple(source.part(row) for row in pairs.targets[chosen]),
        pairs.labels[chosen],
    )


def sample_links(
    sources: Sequence[TrainingSource], size: int, hard_negatives: int, random: np.random.Generator
) -> CandidateBatch:
    """Sample queries, for each one linked document and its lexical neighbours that are not linked.

    Raises:
        CorpusError: no corpus has a link for training.
    """
    source = choose_source(sources, [len(s.corpus.links) for s in sources], "links", random)
    corpus = source.corpus
    linked = np.unique(np.searchsorted(corpus.link_ends, np.arange(len(corpus.links)), "right"))
    queries = random.permutation(linked)[: max(1, size // (2 + hard_negatives))]
    found = [int(random.choice(corpus.linked(int(query)))) for query in queries]
    for query in queries.tolist():
        found += _hard_negatives(source, query, hard_negatives, random)
    candidates = list(dict.fromkeys(found))
    positives = np.array(
        [np.isin(candidates, corpus.linked(int(query))) for query in queries], dtype=np.bool_
    )
    lexical = _lexical(source, queries.tolist(), candidates)
    return CandidateBatch(
        tuple(source.part(int(row)) for row in queries),
        tuple(source.part(row) for row in candidates),
        positives,
        _ignored(source, queries.tolist(), candidates, lexical) & ~positives,
        lexical,
    )


def sample_halves(
    sources: Sequence[TrainingSource], size: int, hard_negatives: int, random: np.random.Generator
) -> CandidateBatch:
    """Sample neighbourhoods of documents; each one's first half looks for its second half.

    The second halves of lexical neighbours are the hard negatives.
    """

    def halves(blocks: int, random: np.random.Generator) -> list[Int64]:
        return cut_blocks(blocks, 2, random)

    return _sample_views(sources, size, hard_negatives, halves, random)


def sample_views(
    sources: Sequence[TrainingSource],
    size: int,
    hard_negatives: int,
    share: float,
    random: np.random.Generator,
) -> CandidateBatch:
    """Sample as `sample_halves`; the two views of a document each lack a share of its blocks."""

    def views(blocks: int, random: np.random.Generator) -> list[Int64]:
        kept = max(1, blocks - int(share * blocks))
        return [np.sort(random.permutation(blocks)[:kept]) for _ in range(2)]

    return _sample_views(sources, size, hard_negatives, views, random)


def sample_neighbours(
    sources: Sequence[TrainingSource], size: int, random: np.random.Generator
) -> SimilarityBatch:
    """Sample neighbourhoods of documents with the teacher's similarities among all of them."""
    source = choose_source(sources, [len(s.rows) for s in sources], "documents", random)
    rows = _neighbourhoods(source, size, random)
    similarities = source.neighbours.between(np.searchsorted(source.rows, rows))
    return SimilarityBatch(tuple(source.part(row) for row in rows), similarities)


def _sample_views(
    sources: Sequence[TrainingSource],
    size: int,
    hard_negatives: int,
    views: Callable[[int, np.random.Generator], list[Int64]],
    random: np.random.Generator,
) -> CandidateBatch:
    counts = [len(s.rows) for s in sources]
    source = choose_source(sources, counts, "documents", random)
    chosen = _neighbourhoods(source, size // (2 + hard_negatives), random)
    queries, candidates, rows = [], [], []
    for row in chosen:
        two = views(source.blocks(row), random)
        queries.append(source.part(row, two[0]))
        candidates.append(source.part(row, two[-1]))
        rows.append(row)
    more = [n for row in chosen for n in _hard_negatives(source, row, hard_negatives, random)]
    for row in dict.fromkeys(more):
        if row not in chosen:
            candidates.append(source.part(row, views(source.blocks(row), random)[-1]))
            rows.append(row)
    positives = np.eye(len(queries), len(candidates), dtype=np.bool_)
    lexical = _lexical(source, chosen, rows)
    ignored = _ignored(source, chosen, rows, lexical) & ~positives
    return CandidateBatch(tuple(queries), tuple(candidates), positives, ignored, lexical)


def choose_source(
    sources: Sequence[TrainingSource], counts: Sequence[int], what: str, random: np.random.Generator
) -> TrainingSource:
    """Choose a corpus by the square root of how much it has.

    Raises:
        CorpusError: none has any of it.
    """
    if not sum(counts):
        raise CorpusError(f"the recipe learns from {what}, and no corpus has any for training")
    shares = np.sqrt(np.array(counts, dtype=np.float64))
    return sources[int(random.choice(len(sources), p=shares / shares.sum()))]


def _neighbourhoods(source: TrainingSource, size: int, random: np.random.Generator) -> list[int]:
    """Sample documents, each followed by some of its lexical neighbours, until there are `size`."""
    chosen: dict[int, None] = {}
    for row in random.permutation(source.rows).tolist():
        if len(chosen) >= max(2, size):
            break
        near = random.permutation(source.near(row))[: NEIGHBOURHOOD - 1]
        chosen |= dict.fromkeys([row, *near.tolist()])
    return list(chosen)[: max(2, size)]


def _hard_negatives(
    source: TrainingSource, row: int, number: int, random: np.random.Generator
) -> list[int]:
    near = source.near(row)
    likely = source.neighbours.similarities[np.searchsorted(source.rows, row)][: len(near)]
    wrong = near[(likely < PROBABLE_MATCH) & ~np.isin(near, source.corpus.linked(row))]
    return [int(near_row) for near_row in random.permutation(wrong)[:number]]


def _lexical(source: TrainingSource, queries: Sequence[int], candidates: Sequence[int]) -> Float32:
    """Return the similarities [Q, C] of the words of documents."""
    rows = np.array([*queries, *candidates], dtype=np.int64)
    between = source.neighbours.between(np.searchsorted(source.rows, rows))
    return between[: len(queries), len(queries) :]


def _ignored(
    source: TrainingSource, queries: Sequence[int], candidates: Sequence[int], lexical: Float32
) -> Bool:
    """Return which candidates are the query itself, linked to it, or so near that they match."""
    masked: Bool = lexical >= PROBABLE_MATCH
    for number, row in enumerate(queries):
        masked[number] |= np.isin(candidates, [row, *source.corpus.linked(row)])
    return masked
