"""Augmented batches (CoLDE, section 3.3): documents cut into sections, with a label each."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from encoder.drawn import DrawnLabels, Part
from index.batches import Source, choose_source
from index.section_cuts import cut_blocks
from index.training_data import TrainingCorpus
from index.vector_index import Int64

Linked = Callable[[int], Int64]  # the rows that a row belongs together with

_NOTHING: Int64 = np.empty(0, dtype=np.int64)


def draw_sections(
    sources: Sequence[Source], size: int, parts: int, random: np.random.Generator
) -> DrawnLabels:
    """Draw documents, each a label of its own; needs nothing but their blocks.

    Args:
        sources: corpora to draw from.
        size: sections, at least; no document is cut off.
        parts: sections of a document; a document of fewer blocks has as many sections.
        random: of the choice.
    """
    source = choose_source(sources, [len(s.rows) for s in sources], "documents", random)
    groups = ([row] for row in random.permutation(source.rows).tolist())
    return _labelled(source, groups, size, parts, random)


def draw_labels(
    sources: Sequence[Source],
    size: int,
    random: np.random.Generator,
    parts: int = 2,
    linked: Sequence[Linked] | None = None,
) -> DrawnLabels:
    """Draw groups of two documents that belong together, cut into sections: a label a group.

    No document of a group belongs together with one of another. Where nothing is known to belong
    together a group is one document.

    Args:
        sources: corpora to draw from.
        size: sections, at least; no group is cut off.
        random: of the choice.
        parts: sections of a document; 1 leaves documents whole.
        linked: of each corpus, what belongs together; its links when not given.
    """
    linked = linked or [source.corpus.linked for source in sources]
    known = [sum(len(of(row)) > 0 for row in s.rows) for s, of in zip(sources, linked, strict=True)]
    counts = known if any(known) else [len(source.rows) for source in sources]
    source = choose_source(sources, counts, "documents", random)
    of_source = next(of for one, of in zip(sources, linked, strict=True) if one is source)
    groups = _groups(source, of_source, random, alone=not any(known))
    return _labelled(source, groups, size, parts, random)


def matching_pairs(corpus: TrainingCorpus) -> Linked:
    """Return what the pairs of a corpus's training part say to belong together."""
    pairs = corpus.pairs
    sources, targets = pairs.sources[pairs.labels], pairs.targets[pairs.labels]
    found: dict[int, list[int]] = {}
    for a, b in zip(sources.tolist(), targets.tolist(), strict=True):
        found.setdefault(a, []).append(b)
        found.setdefault(b, []).append(a)
    rows = {row: np.unique(np.array(others, dtype=np.int64)) for row, others in found.items()}
    return lambda row: rows.get(row, _NOTHING)


def _groups(
    source: Source, linked: Linked, random: np.random.Generator, *, alone: bool
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
    source: Source,
    groups: Iterator[list[int]],
    size: int,
    parts: int,
    random: np.random.Generator,
) -> DrawnLabels:
    drawn: list[Part] = []
    labels: list[int] = []
    for label, group in enumerate(groups):
        for row in group:
            starts = source.section_starts.get(row, ())
            cut = cut_blocks(source.blocks(row), parts, random, starts)
            drawn += [
                source.part(row, places, number, len(cut)) for number, places in enumerate(cut)
            ]
            labels += [label] * len(cut)
        if len(drawn) >= size:
            break
    return DrawnLabels(tuple(drawn), np.array(labels, dtype=np.int64))
