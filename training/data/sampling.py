"""Sampling of the batches of training steps: functions of a random generator and nothing else.

Every batch is of one corpus: a negative from another corpus teaches which corpus a document is of.
It is chosen by the square root of how much it has to sample from, so that a small corpus
counts beside a large one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Bool, Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.comparison.sections import find_sections
from encoder.tokenizer import BlockTokenizer
from evaluation.baselines import tfidf_matrix
from index.corpus.reader import read_corpus, read_documents
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus import Related, TrainingCorpus, relate
from training.data.pair_files import TRAIN
from training.recipe import (
    ContrastiveRecipe,
    DistillationRecipe,
    ObjectiveRecipe,
    PairsRecipe,
    SectionsRecipe,
    SupervisedContrastiveRecipe,
    TrainingRecipe,
)


@dataclass(frozen=True, slots=True)
class DocumentSlice:
    """A document, or a slice of its sentence blocks.

    Attributes:
        archive: number of the block archive.
        row: of the document in it.
        places: Int64[S], ascending, which of its blocks; all of them when None.
        section: number of the section that these blocks are, of a document that is cut.
        sections: into how many it is cut, all of which follow one another in a batch; 1 for a
            document, or some of its blocks, that stands for itself.
    """

    archive: int
    row: int
    places: Int64 | None = None
    section: int = 0
    sections: int = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """The documents of a step, and what is known of them.

    Attributes:
        documents: D of them. Pairs are P sources, then their P targets; a search is Q queries,
            then C candidates, with the hard negatives among them.
        known: of pairs "labels" Bool[P]. Of a search "positives" Bool[Q, C], of which every query
            has one, and "ignored" Bool[Q, C], neither positive nor negative: probably matches,
            but not judged. Of groups "labels" Int64[D]: equal ones belong together. Of
            neighbourhoods "similarities" Float32[D, D], as a teacher finds them.
    """

    documents: tuple[DocumentSlice, ...]
    known: Mapping[str, NDArray[Any]] = field(default_factory=dict)


_PLAY = 0.4  # of an equal part, by which a random cut may lie beside its place


def cut_blocks(
    blocks: int,
    parts: int,
    random: np.random.Generator,
    starts: Sequence[int] | Int64 = (),
) -> list[Int64]:
    """Cut the blocks of a document into sections.

    Args:
        blocks: how many there are, at least one.
        parts: sections, at most: none is empty.
        random: moves each cut a little away from equal parts, another way in each step: halves are
            from 0.3 to 0.7 of the document.
        starts: blocks that the document's own sections begin with; the nearest to each cut is
            taken. Without any a cut may lie before any block.

    Returns:
        The places of the blocks of each section, in order; together they are all.
    """
    allowed = np.unique(np.asarray(starts, dtype=np.int64))
    allowed = allowed[(allowed > 0) & (allowed < blocks)]
    if not len(allowed):
        allowed = np.arange(1, blocks, dtype=np.int64)
    cuts: list[int] = [0]
    for number in range(1, min(parts, len(allowed) + 1)):
        target = round((number + random.uniform(-_PLAY, _PLAY)) * blocks / parts)
        left = allowed[allowed > cuts[-1]]
        left = left[: len(left) - (min(parts, len(allowed) + 1) - 1 - number)]
        cuts.append(int(left[np.abs(left - target).argmin()]))
    return [np.arange(a, b, dtype=np.int64) for a, b in pairwise([*cuts, blocks])]


NEIGHBOURS = 32  # of each document, at most
_MEMORY = 64  # MiB of similarities that are held at a time


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The lexical neighbours of M texts, which are known by their places 0 to M - 1.

    Attributes:
        nearest: Int64[M, K], places of the nearest other texts, nearest first; -1 where fewer share
            a word.
        similarities: Float32[M, K], cosines of TF-IDF; 0 where there is none.
        words: `tfidf_matrix` of the texts; None where neighbours were not searched for.
    """

    nearest: Int64
    similarities: Float32
    words: Any

    def between(self, places: Sequence[int] | Int64) -> Float32:
        """Return the similarities [D, D] of D texts among each other."""
        chosen = self.words[places]
        similarities: Float32 = (chosen @ chosen.T).toarray()
        return similarities


def find_neighbours(texts: Sequence[str]) -> Neighbours:
    """Compare each text with each other."""
    from sklearn import config_context
    from sklearn.neighbors import NearestNeighbors

    matrix = tfidf_matrix(texts)
    count = min(NEIGHBOURS, len(texts) - 1)
    search = NearestNeighbors(n_neighbors=count, metric="cosine", algorithm="brute").fit(matrix)
    with config_context(working_memory=_MEMORY):
        distances, nearest = search.kneighbors()  # a text is not its own neighbour
    similarities = np.maximum(1 - distances, 0).astype(np.float32)
    return Neighbours(np.where(similarities > 0, nearest, -1), similarities, matrix)


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
            self.number, int(self.corpus.texts.rows[row]), places, section, sections
        )

    def blocks(self, row: int) -> int:
        """Return how many blocks of a document are read."""
        texts = self.corpus.texts
        return min(int(texts.archive.sizes[texts.rows[row]]), self.max_blocks)

    def near(self, row: int) -> Int64:
        """Return the rows of the lexical neighbours of a document, nearest first."""
        places = self.neighbours.nearest[np.searchsorted(self.rows, row)]
        near: Int64 = self.rows[places[places >= 0]]
        return near


def sample_documents(
    sources: Sequence[TrainingSource], size: int, random: np.random.Generator
) -> Batch:
    """Sample documents of all corpora, none twice."""
    ends = np.cumsum([len(source.rows) for source in sources])
    parts = []
    # Not a permutation of all: a step must not take longer in a larger corpus.
    chosen = random.choice(ends[-1], min(size, int(ends[-1])), replace=False)
    for place in chosen.tolist():
        number = int(np.searchsorted(ends, place, side="right"))
        source = sources[number]
        parts.append(source.part(source.rows[place - ends[number]]))
    return Batch(tuple(parts))


def sample_pairs(
    sources: Sequence[TrainingSource], size: int, random: np.random.Generator
) -> Batch:
    """Sample size / 2 labelled pairs."""
    counts = [len(source.corpus.pairs[TRAIN].labels) for source in sources]
    source = choose_source(sources, counts, "pairs", random)
    pairs = source.corpus.pairs[TRAIN]
    chosen = random.permutation(len(pairs.labels))[: max(1, size // 2)]
    rows = np.concatenate([pairs.sources[chosen], pairs.targets[chosen]])
    return Batch(tuple(map(source.part, rows)), {"labels": pairs.labels[chosen]})


def sample_links(
    sources: Sequence[TrainingSource], size: int, hard_negatives: int, random: np.random.Generator
) -> Batch:
    """Sample queries, for each a linked document and lexical neighbours that are not linked."""
    source = choose_source(sources, [s.corpus.found.links for s in sources], "links", random)
    links = source.corpus.links
    queries = random.permutation(list(links))[: max(1, size // (2 + hard_negatives))].tolist()
    found = [int(random.choice(links[query])) for query in queries]
    for query in queries:
        found += _hard_negatives(source, query, hard_negatives, random)
    candidates = list(dict.fromkeys(found))
    positives = np.array([np.isin(candidates, links[query]) for query in queries], dtype=np.bool_)
    ignored = _ignored(source, queries, candidates) & ~positives
    documents = tuple(map(source.part, [*queries, *candidates]))
    return Batch(documents, {"positives": positives, "ignored": ignored})


def sample_halves(
    sources: Sequence[TrainingSource], size: int, hard_negatives: int, random: np.random.Generator
) -> Batch:
    """Sample neighbourhoods of documents; each one's first half looks for its second half.

    The second halves of lexical neighbours are the hard negatives.
    """
    counts = [len(s.rows) for s in sources]
    source = choose_source(sources, counts, "documents", random)
    chosen = _neighbourhoods(source, size // (2 + hard_negatives), random)
    queries, candidates, rows = [], [], []
    for row in chosen:
        halves = cut_blocks(source.blocks(row), 2, random)
        queries.append(source.part(row, halves[0]))
        candidates.append(source.part(row, halves[-1]))
        rows.append(row)
    more = [n for row in chosen for n in _hard_negatives(source, row, hard_negatives, random)]
    for row in dict.fromkeys(more):
        if row not in chosen:
            candidates.append(source.part(row, cut_blocks(source.blocks(row), 2, random)[-1]))
            rows.append(row)
    positives = np.eye(len(queries), len(candidates), dtype=np.bool_)
    ignored = _ignored(source, chosen, rows) & ~positives
    return Batch((*queries, *candidates), {"positives": positives, "ignored": ignored})


def sample_neighbours(
    sources: Sequence[TrainingSource], size: int, random: np.random.Generator
) -> Batch:
    """Sample neighbourhoods of documents with the teacher's similarities among all of them."""
    source = choose_source(sources, [len(s.rows) for s in sources], "documents", random)
    rows = _neighbourhoods(source, size, random)
    similarities = source.neighbours.between(np.searchsorted(source.rows, rows))
    return Batch(tuple(map(source.part, rows)), {"similarities": similarities})


def choose_source(
    sources: Sequence[TrainingSource], counts: Sequence[int], what: str, random: np.random.Generator
) -> TrainingSource:
    """Choose a corpus by the square root of how much it has."""
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


def _ignored(source: TrainingSource, queries: Sequence[int], candidates: Sequence[int]) -> Bool:
    """Return which candidates are the query itself, linked to it, or so near that they match."""
    rows = np.array([*queries, *candidates], dtype=np.int64)
    between = source.neighbours.between(np.searchsorted(source.rows, rows))
    masked: Bool = between[: len(queries), len(queries) :] >= PROBABLE_MATCH
    for number, row in enumerate(queries):
        masked[number] |= np.isin(candidates, [row, *source.corpus.linked(row)])
    return masked


def find_section_starts(
    corpus: TrainingCorpus, checkpoint: Checkpoint, progress: Progress
) -> dict[int, Int64]:
    """Find where sections begin in the texts of the training part.

    Args:
        corpus: encoded with the tokenizer of the checkpoint.

    Returns:
        For each row of a document with headings, the first blocks of its sections, ascending:
        each is the first block without text of the section before it.
    """
    progress.started(f"sections of {corpus.files.corpus.name}", None)
    row_of = {corpus.texts.ids[row]: row for row in corpus.rows(TRAIN).tolist()}
    tokenizer = BlockTokenizer(checkpoint)
    starts = {}
    for document in read_corpus(corpus.files.corpus):
        if not isinstance(document, Document) or document.id not in row_of:
            continue
        sections = find_sections(document.text, 1)
        if len(sections) > 1:
            offsets = tokenizer(document.text).offsets
            characters = [section.span.start for section in sections[1:]]
            starts[row_of[document.id]] = blocks_at(offsets, characters)
    return starts


def blocks_at(offsets: Sequence[tuple[int, int]], characters: Sequence[int]) -> Int64:
    """Return the first block that begins at or after each character, none twice.

    Args:
        offsets: (start, end) characters of each block.
    """
    begins = [start for start, _ in offsets]
    return np.unique(np.array([bisect_left(begins, c) for c in characters], dtype=np.int64))


def sample_labels(
    sources: Sequence[TrainingSource],
    size: int,
    random: np.random.Generator,
    parts: int = 2,
    related: Mapping[int, Related] = MappingProxyType({}),
) -> Batch:
    """Sample groups of two related documents, cut into sections: one label for each group.

    No document of a group is related to one of another group. Where no relations are known, a
    group is one document.

    Args:
        size: minimum number of sections; every group is complete.
        parts: sections of a document; 1 leaves documents whole.
        related: documents of each source, by its number.
    """
    known = [len(related.get(source.number, ())) for source in sources]
    counts = known if any(known) else [len(source.rows) for source in sources]
    source = choose_source(sources, counts, "documents", random)
    chosen: list[DocumentSlice] = []
    labels: list[int] = []
    groups = _groups(source, related.get(source.number, {}), random, alone=not any(known))
    for label, group in enumerate(groups):
        for row in group:
            starts = source.section_starts.get(row, ())
            cut = cut_blocks(source.blocks(row), parts, random, starts)
            chosen += [
                source.part(row, places, number, len(cut)) for number, places in enumerate(cut)
            ]
            labels += [label] * len(cut)
        if len(chosen) >= size:
            break
    return Batch(tuple(chosen), {"labels": np.array(labels, dtype=np.int64)})


def matching_documents(source: TrainingSource) -> Related:
    """Return the relations that the labelled pairs of the training part give."""
    pairs = source.corpus.pairs[TRAIN]
    ends = pairs.sources[pairs.labels].tolist(), pairs.targets[pairs.labels].tolist()
    return relate(zip(*ends, strict=True))


def _groups(
    source: TrainingSource, related: Related, random: np.random.Generator, *, alone: bool
) -> Iterator[list[int]]:
    taken: set[int] = set()
    for row in random.permutation(source.rows).tolist():
        if row in taken or not (alone or row in related):
            continue
        group = [row, int(random.choice(related[row]))] if row in related else [row]
        around = {near for member in group for near in related.get(member, ())}
        if not taken & (around | set(group)):
            taken |= set(group)
            yield group


def _require_both_labels(sources: Sequence[TrainingSource]) -> None:
    for corpus in (source.corpus for source in sources):
        labels = corpus.pairs[TRAIN].labels
        if len(labels) and labels.all() == labels.any():
            raise CorpusError(
                f"{', '.join(map(str, corpus.files.pairs))}: all pairs for training have the label "
                f"{int(labels[0])}: training on pairs takes similar ones and others; similar ones "
                "alone can be given as links (qrels)"
            )


Sampler = Callable[[np.random.Generator], Batch]
_OF_WORDS = frozenset({"links", "halves", "distil"})  # kinds that know lexical neighbours


def find_sources(
    recipe: TrainingRecipe,
    start: Checkpoint,
    data: Sequence[TrainingCorpus],
    progress: Progress,
) -> list[TrainingSource]:
    """Find what the samplers of a recipe need: lexical neighbours and sections, if they do.

    Lexical neighbours are of the training part of each corpus: all of its texts are read, and each
    is compared with each.

    Args:
        start: whose tokenizer cut the documents into blocks.
        data: corpora; the number of a part's archive is their place.
    """
    cut = any("parts" in objective.parameters for objective in recipe.objectives)
    sources = []
    for number, corpus in enumerate(data):
        rows = corpus.rows(TRAIN)
        if len(rows) < 2:
            continue  # nothing to sample: held-out documents only
        nothing = np.empty((len(rows), 0), dtype=np.int64)
        found = Neighbours(nothing, nothing.astype(np.float32), None)
        if needs_neighbours(recipe.objectives):
            progress.started(f"lexical neighbours of {corpus.files.corpus.name}", None)
            ids = [corpus.texts.ids[row] for row in rows.tolist()]
            documents = read_documents(corpus.files.corpus, ids)
            found = find_neighbours([document.text for document in documents])
        starts = find_section_starts(corpus, start, progress) if cut else {}
        sources.append(TrainingSource(number, corpus, rows, found, recipe.max_blocks, starts))
    return sources


def needs_neighbours(objectives: Sequence[ObjectiveRecipe]) -> bool:
    """Say whether the batches of some objective are made of lexical neighbours."""
    return any(objective.kind in _OF_WORDS for objective in objectives)


def sampler_of(objective: ObjectiveRecipe, sources: Sequence[TrainingSource], size: int) -> Sampler:
    """Return the sampler of the batches of an objective."""
    match objective:
        case PairsRecipe():
            _require_both_labels(sources)
            return lambda random: sample_pairs(sources, size, random)
        case ContrastiveRecipe(kind="links", hard_negatives=hard):
            return lambda random: sample_links(sources, size, hard, random)
        case ContrastiveRecipe(hard_negatives=hard):
            return lambda random: sample_halves(sources, size, hard, random)
        case SectionsRecipe(parts=parts):
            return lambda random: sample_labels(sources, size, random, parts)
        case SupervisedContrastiveRecipe(parts=parts, groups=groups):
            related = {
                source.number: matching_documents(source)
                if groups == "pairs"
                else source.corpus.links
                for source in sources
            }
            return lambda random: sample_labels(sources, size, random, parts, related)
        case DistillationRecipe():
            return lambda random: sample_neighbours(sources, size, random)
        case _:
            return lambda random: sample_documents(sources, size, random)
