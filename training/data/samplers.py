"""The batches of a recipe's objectives, out of a user's corpora."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from index.corpus.reader import read_corpus
from index.document import Document
from index.progress import Progress
from training.data.batch_specs import Drawn
from training.data.corpus import TrainingCorpus
from training.data.neighbours import find_neighbours
from training.data.sampling import (
    Source,
    draw_documents,
    draw_halves,
    draw_links,
    draw_neighbours,
    draw_pairs,
    draw_views,
    new_source,
)
from training.data.sections import draw_labels, draw_sections, matching_pairs
from training.data.splits import TRAIN

if TYPE_CHECKING:
    from training.recipe import ObjectiveRecipe

Draw = Callable[[np.random.Generator], Drawn]


def find_sources(
    data: Sequence[TrainingCorpus],
    directories: Sequence[Path],
    max_blocks: int,
    progress: Progress,
) -> list[Source]:
    """Find the lexical neighbours of the training part of each corpus.

    Args:
        data: corpora; the number of a part's archive is their place.
        directories: where the neighbours of each are kept.
        max_blocks: blocks of a document that training reads.
        progress: hears of it.

    Raises:
        CorpusError: scikit-learn is not installed, or a corpus has too few words in common.
    """
    sources = []
    for number, (one, directory) in enumerate(zip(data, directories, strict=True)):
        rows = one.rows(TRAIN)
        if len(rows) < 2:
            continue  # nothing to draw from: held-out documents only
        progress.started(f"lexical neighbours of {one.files.corpus.name}", None)
        neighbours = find_neighbours(directory, _texts(one, rows.tolist()))
        sources.append(new_source(number, one, neighbours, max_blocks))
    return sources


def draw_of(objective: "ObjectiveRecipe", sources: Sequence[Source], size: int) -> Draw:
    """Return what draws the batches of an objective.

    Args:
        objective: one of a recipe.
        sources: of the data.
        size: documents of a batch.
    """
    parameters = objective.parameters
    hard = parameters.get("hard_negatives", 0)
    share = parameters.get("share", 0.0)
    parts = parameters.get("parts", 1)
    linked = None
    if parameters.get("groups") == "pairs":
        linked = [matching_pairs(one.corpus) for one in sources]
    draws: dict[str, Draw] = {
        "pairs": lambda random: draw_pairs(sources, size, random),
        "links": lambda random: draw_links(sources, size, hard, random),
        "supcon": lambda random: draw_labels(sources, size, random, parts, linked),
        "sections": lambda random: draw_sections(sources, size, parts, random),
        "halves": lambda random: draw_halves(sources, size, hard, random),
        "drop": lambda random: draw_views(sources, size, hard, share, random),
        "distil": lambda random: draw_neighbours(sources, size, random),
        "wp": lambda random: draw_documents(sources, size, random),
        "sp": lambda random: draw_documents(sources, size, random),
    }
    return draws[objective.kind]


def _texts(one: TrainingCorpus, rows: Sequence[int]) -> list[str]:
    """Read the texts of some documents; the archive has only their tokens."""
    wanted = {one.encoded.ids[row]: place for place, row in enumerate(rows)}
    texts = [""] * len(rows)
    for document in read_corpus(one.files.corpus):
        if isinstance(document, Document) and document.id in wanted:
            texts[wanted[document.id]] = document.text
    return texts
