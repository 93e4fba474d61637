"""Labelled pairs with their scores in each mode: what a calibration is fitted on."""

from pathlib import Path

import numpy as np

from encoder.calibration import FittedOn
from encoder.checkpoint import file_digest
from index.calibrate import ScoredPairs
from index.mode_pairs import Channels, measure_modes, mode_scores
from index.modes import Mode
from index.observer import Observer, SilentObserver
from index.pairs import find_pairs, read_pairs


def score_labelled_pairs(
    pairs_file: Path, ids: tuple[str, ...], channels: Channels, observer: Observer, seed: int
) -> dict[Mode, ScoredPairs]:
    """Score labelled pairs of a corpus of these N ids, and random pairs beside.

    Raises:
        CorpusError: the pairs cannot be read, a document of them is missing, or the corpus is too
            small.
    """
    rows = find_pairs(read_pairs(pairs_file), ids)
    labels = rows.labels.astype(np.int64)
    name = f"{pairs_file.absolute().parent.name}/{pairs_file.name}"
    fitted_on = FittedOn(name, len(labels), int(labels.sum()), file_digest(pairs_file))
    labelled = np.stack([rows.sources, rows.targets], axis=1)
    measured = measure_modes(channels, observer, seed=seed)
    scored = mode_scores(channels, labelled, SilentObserver())
    return {
        mode: ScoredPairs(fitted_on, scores, labels, measured[mode])
        for mode, scores in scored.items()
    }
