"""Augmented batches (CoLDE, section 3.3): documents cut into labelled sections."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from encoder.arrays import Int64
from encoder.checkpoint import Checkpoint
from encoder.comparison.sections import find_sections
from encoder.tokenizer import BlockTokenizer
from index.corpus.reader import read_corpus
from index.document import Document
from index.progress import Progress
from training.data.batch_specs import DocumentSlice, LabelBatch, cut_blocks
from training.data.corpus import TrainingCorpus
from training.data.sampling import TrainingSource, choose_source
from training.data.splits import TRAIN


def find_section_starts(
    corpus: TrainingCorpus, checkpoint: Checkpoint, progress: Progress
) -> dict[int, Int64]:
    """Find where sections begin in the texts of the training part.

    Args:
        corpus: encoded with the tokenizer of the checkpoint.
        checkpoint: whose tokenizer it is.
        is notified.

    Returns:
        For each row of a document with headings, the first blocks of its sections, ascending:
        each is the first block without text of the section before it.

    Raises:
        CorpusError: the corpus cannot be read.
    """
    progress.started(f"sections of {corpus.files.corpus.name}", None)
    row_of = {corpus.encoded.ids[row]: row for row in corpus.rows(TRAIN).tolist()}
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
        characters: where sections begin.
    """
    begins = [start for start, _ in offsets]
    return np.unique(np.array([bisect_left(begins, c) for c in characters], dtype=np.int64))


Linked = Callable[[int], Int64]  # a row -> the rows it is related to

_NOTHING: Int64 = np.empty(0, dtype=np.int64)


def sample_sections(
    sources: Sequence[TrainingSource], size: int, parts: int, random: np.random.Generator
) -> LabelBatch:
    """Sample documents, each with a label of its own; only their blocks are needed.

    Args:
        sources: corpora to sample from.
        size: minimum number of sections; every document is complete.
        parts: sections of a document; a document of fewer blocks has as many sections.
        random: of the choice.
    """
    source = choose_source(sources, [len(s.rows) for s in sources], "documents", random)
    groups = ([row] for row in random.permutation(source.rows).tolist())
    return _labelled(source, enumerate(groups), size, parts, random)


def sample_labels(
    sources: Sequence[TrainingSource],
    size: int,
    random: np.random.Generator,
    parts: int = 2,
    linked: Sequence[Linked] | None = None,
) -> LabelBatch:
    """Sample groups of two related documents, cut into sections: one label for each group.

    No document of a group is related to one of another group. Where no relations are known, a
    group is one document.

    Args:
        sources: corpora to sample from.
        size: minimum number of sections; every group is complete.
        random: of the choice.
        parts: sections of a document; 1 leaves documents whole.
        linked: of each corpus, the related documents; its links when not given.
    """
    linked = linked or [source.corpus.linked for source in sources]
    known = [sum(len(of(row)) > 0 for row in s.rows) for s, of in zip(sources, linked, strict=True)]
    counts = known if any(known) else [len(source.rows) for source in sources]
    source = choose_source(sources, counts, "documents", random)
    of_source = next(of for one, of in zip(sources, linked, strict=True) if one is source)
    groups = _groups(source, of_source, random, alone=not any(known))
    return _labelled(source, enumerate(groups), size, parts, random)


def class_members(corpus: TrainingCorpus) -> list[Int64]:
    """Return the rows of the training part of each class that has at least two of them.

    Returns:
        Rows of each class; nothing if there are fewer than two such classes: one alone has no
        negatives.
    """
    rows = corpus.rows(TRAIN)
    classes = corpus.classes[rows]
    members = [rows[classes == label] for label in np.unique(classes[classes >= 0])]
    shared = [one for one in members if len(one) > 1]
    return shared if len(shared) > 1 else []


def sample_classes(
    sources: Sequence[TrainingSource],
    members: Sequence[Sequence[Int64]],
    size: int,
    random: np.random.Generator,
    parts: int = 2,
    per_class: int = 4,
) -> LabelBatch:
    """Sample documents of several classes, cut into sections: one label for each class.

    A class is drawn with the share that it has of the documents, which the random batches of the
    paper amount to (CoLDE, section 3.3), but none again before all others; it brings `per_class`
    documents, so that the batch has several of each class, and of two classes at least.

    Args:
        sources: corpora to sample from.
        members: of each corpus, `class_members`.
        size: minimum number of sections; every document is complete.
        random: of the choice.
        parts: sections of a document; 1 leaves documents whole.
        per_class: documents of a class at a time; fewer where the class has no more.

    Raises:
        CorpusError: no corpus has two classes of two documents each.
    """
    counts = [sum(map(len, one)) for one in members]
    source = choose_source(sources, counts, "classes", random)
    of_source = next(of for one, of in zip(sources, members, strict=True) if one is source)
    groups = _class_groups(of_source, per_class, random)
    return _labelled(source, groups, size, parts, random, fewest=2)


def _class_groups(
    members: Sequence[Int64], per_class: int, random: np.random.Generator
) -> Iterator[tuple[int, list[int]]]:
    left = [random.permutation(rows).tolist() for rows in members]
    while any(left):
        owners = np.repeat(np.arange(len(left)), [len(rows) for rows in left])
        for label in dict.fromkeys(random.permutation(owners).tolist()):
            yield label, left[label][:per_class]
            left[label] = left[label][per_class:]


def matching_pairs(corpus: TrainingCorpus) -> Linked:
    """Return the relations given by the labelled pairs of the training part of a corpus."""
    pairs = corpus.pairs
    sources, targets = pairs.sources[pairs.labels], pairs.targets[pairs.labels]
    found: dict[int, list[int]] = {}
    for a, b in zip(sources.tolist(), targets.tolist(), strict=True):
        found.setdefault(a, []).append(b)
        found.setdefault(b, []).append(a)
    rows = {row: np.unique(np.array(others, dtype=np.int64)) for row, others in found.items()}
    return lambda row: rows.get(row, _NOTHING)


def _groups(
    source: TrainingSource, linked: Linked, random: np.random.Generator, *, alone: bool
) -> Iterator[list[int]]:
    taken: set[int] = set()
    for row in random.permutation(source.rows).tolist():
        links = linked(row)
        if row in taken or not (alone or len(links)):
            continue
        group = [row, int(random.choice(links))] if len(links) else [row]
        around = {int(near) for member in group for near in linked(member)}
        if not taken & (around | set(group)):
            taken |= set(group)
            yield group


def _labelled(
    source: TrainingSource,
    groups: Iterable[tuple[int, list[int]]],
    size: int,
    parts: int,
    random: np.random.Generator,
    *,
    fewest: int = 1,
) -> LabelBatch:
    """Cut groups into sections until there are `size` of them, and `fewest` labels."""
    chosen: list[DocumentSlice] = []
    labels: list[int] = []
    for label, group in groups:
        for row in group:
            starts = source.section_starts.get(row, ())
            cut = cut_blocks(source.blocks(row), parts, random, starts)
            chosen += [
                source.part(row, places, number, len(cut)) for number, places in enumerate(cut)
            ]
            labels += [label] * len(cut)
        if len(chosen) >= size and len(set(labels)) >= fewest:
            break
    return LabelBatch(tuple(chosen), np.array(labels, dtype=np.int64))
