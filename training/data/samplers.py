"""The samplers of a recipe's objectives."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from index.corpus.reader import read_corpus
from index.document import Document
from index.progress import Progress
from training.data.batch_specs import BatchSpec
from training.data.corpus import TrainingCorpus
from training.data.neighbours import find_neighbours, without_neighbours
from training.data.sampling import (
    TrainingSource,
    new_training_source,
    sample_documents,
    sample_halves,
    sample_links,
    sample_neighbours,
    sample_pairs,
    sample_views,
)
from training.data.sections import (
    class_members,
    matching_pairs,
    sample_classes,
    sample_labels,
    sample_sections,
)
from training.data.splits import TRAIN
from training.recipe_tables.objectives import DISTIL_BLOCKS

if TYPE_CHECKING:
    from training.recipe_tables.objectives import ObjectiveRecipe

Sampler = Callable[[np.random.Generator], BatchSpec]
_OF_WORDS = frozenset({"links", "halves", "drop", "distil"})  # kinds that know lexical neighbours


def find_sources(
    data: Sequence[TrainingCorpus],
    directories: Sequence[Path],
    max_blocks: int,
    progress: Progress,
    *,
    neighbours: bool = True,
) -> list[TrainingSource]:
    """Find the lexical neighbours of the training part of each corpus.

    Args:
        data: corpora; the number of a part's archive is their place.
        directories: where the neighbours of each are kept.
        max_blocks: blocks of a document that training reads.
        progress: is notified.
        neighbours: whether they are searched for: all texts are read, and each is compared with
            each.

    Raises:
        CorpusError: scikit-learn is not installed, or a corpus has too few words in common.
    """
    sources = []
    for number, (one, directory) in enumerate(zip(data, directories, strict=True)):
        rows = one.rows(TRAIN)
        if len(rows) < 2:
            continue  # nothing to sample: held-out documents only
        found = without_neighbours(len(rows))
        if neighbours:
            progress.started(f"lexical neighbours of {one.files.corpus.name}", None)
            found = find_neighbours(directory, _texts(one, rows.tolist()))
        sources.append(new_training_source(number, one, found, max_blocks))
    return sources


def needs_neighbours(objectives: "Sequence[ObjectiveRecipe]") -> bool:
    """Say whether the batches of some objective are made of lexical neighbours."""
    return any(one.kind in _OF_WORDS for one in objectives)


def sampler_of(
    objective: "ObjectiveRecipe", sources: Sequence[TrainingSource], size: int
) -> Sampler:
    """Return the sampler of the batches of an objective.

    Args:
        objective: one of a recipe.
        sources: of the data.
        size: documents of a batch.
    """
    parameters = objective.parameters
    hard = parameters.get("hard_negatives", 0)
    share = parameters.get("share", 0.0)
    parts = parameters.get("parts", 1)
    if parameters.get("groups") == "classes":
        members = [class_members(one.corpus) for one in sources]
        per_class = parameters["documents_per_class"]
        return lambda random: sample_classes(sources, members, size, random, parts, per_class)
    linked = None
    if parameters.get("groups") == "pairs":
        linked = [matching_pairs(one.corpus) for one in sources]
    samplers: dict[str, Sampler] = {
        "pairs": lambda random: sample_pairs(sources, size, random),
        "links": lambda random: sample_links(sources, size, hard, random),
        "supcon": lambda random: sample_labels(sources, size, random, parts, linked),
        "sections": lambda random: sample_sections(sources, size, parts, random),
        "halves": lambda random: sample_halves(sources, size, hard, random),
        "drop": lambda random: sample_views(sources, size, hard, share, random),
        "distil": lambda random: sample_neighbours(sources, size, random),
        "wp": lambda random: sample_documents(sources, size, random),
        DISTIL_BLOCKS: lambda random: sample_documents(sources, size, random),
        "reorder": lambda random: sample_documents(sources, size, random),
        "sp": lambda random: sample_documents(sources, size, random),
        "wp+sp": lambda random: sample_documents(sources, size, random),
    }
    return samplers[objective.kind]


def _texts(one: TrainingCorpus, rows: Sequence[int]) -> list[str]:
    """Read the texts of some documents, of which the archive has only tokens."""
    wanted = {one.encoded.ids[row]: place for place, row in enumerate(rows)}
    texts = [""] * len(rows)
    for document in read_corpus(one.files.corpus):
        if isinstance(document, Document) and document.id in wanted:
            texts[wanted[document.id]] = document.text
    return texts
