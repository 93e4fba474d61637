"""Validation of a training run, on documents that training does not see."""

from collections.abc import Callable, Sequence

import numpy as np

from encoder.arrays import Float32, Int64
from evaluation.metrics import AUC, evaluate_run, measure_pairs
from evaluation.systems import rank, vector_system
from training.data.batch_specs import DocumentSlice
from training.data.corpus import TrainingCorpus
from training.data.splits import TRAIN, VALID

LINKS = "nDCG@10 of the validation queries"
PAIRS = "AUC of the validation pairs"
HALVES = "reciprocal rank of the other half of a held-out document"
_HELD_OUT = 1_000  # documents whose halves are searched, at most
_OTHERS = 2_000  # documents of the training part among whose halves they are searched, at most

EncodeParts = Callable[[Sequence[DocumentSlice]], Float32]  # -> [D, dimension], unit norm


def choose_figure(data: Sequence[TrainingCorpus]) -> str:
    """Return the best figure that the data allows: of links, else of pairs, else of halves."""
    if any(one.judgements for one in data):
        return LINKS
    return PAIRS if any(_has_both(one) for one in data) else HALVES


def measure(
    data: Sequence[TrainingCorpus], encode: EncodeParts, figure: str, max_blocks: int
) -> float:
    """Return a figure, the mean over the corpora that allow it; higher is better.

    Args:
        data: corpora; the number of a part's archive is their place.
        encode: encodes documents.
        figure: as `choose_figure` gives it.
        max_blocks: blocks of a document that are read.

    Raises:
        CorpusError: the extra that measures is not installed.
    """
    figures = []
    for number, one in enumerate(data):
        if figure == LINKS and one.judgements:
            figures.append(_links(number, one, encode))
        elif figure == PAIRS and _has_both(one):
            figures.append(_pairs(number, one, encode))
        elif figure == HALVES and len(one.rows(VALID)):
            figures.append(_halves(number, one, encode, max_blocks))
    return float(np.mean(figures)) if figures else 0.0


def _links(number: int, one: TrainingCorpus, encode: EncodeParts) -> float:
    ids = one.encoded.ids
    vectors = encode([DocumentSlice(number, int(row)) for row in one.encoded.rows])
    row_of = {name: row for row, name in enumerate(ids)}
    queries = list(one.judgements)
    rows = np.array([row_of[query] for query in queries], dtype=np.int64)
    run = rank(vector_system("trained", "", vectors), ids, queries, rows)
    return evaluate_run(run, ids, one.judgements)["nDCG@10"]


def _pairs(number: int, one: TrainingCorpus, encode: EncodeParts) -> float:
    pairs = one.valid_pairs
    rows, places = np.unique(np.concatenate([pairs.sources, pairs.targets]), return_inverse=True)
    vectors = encode([DocumentSlice(number, int(one.encoded.rows[row])) for row in rows])
    sources, targets = np.split(vectors[places], 2)
    cosines = (sources * targets).sum(1)
    return measure_pairs(cosines, pairs.labels, 0.0)[AUC]


def _halves(number: int, one: TrainingCorpus, encode: EncodeParts, max_blocks: int) -> float:
    """Return the mean reciprocal rank of second halves, searched by first halves, and back."""
    held_out, others = one.rows(VALID)[:_HELD_OUT], one.rows(TRAIN)[:_OTHERS]
    parts = [_cut(number, one, int(row), max_blocks) for row in np.concatenate([held_out, others])]
    firsts = encode([first for first, _ in parts])
    seconds = encode([second for _, second in parts])
    here: Int64 = np.arange(len(held_out), dtype=np.int64)
    ranks = [
        (cosines > cosines[here, here][:, None]).sum(1) + 1
        for cosines in (firsts[here] @ seconds.T, seconds[here] @ firsts.T)
    ]
    return float(np.mean([(1 / rank).mean() for rank in ranks]))


def _cut(
    number: int, one: TrainingCorpus, row: int, max_blocks: int
) -> tuple[DocumentSlice, DocumentSlice]:
    archive_row = int(one.encoded.rows[row])
    start, stop = one.encoded.archive.span(archive_row)
    places = np.arange(min(stop - start, max_blocks), dtype=np.int64)
    middle = len(places) // 2  # a single block is both halves
    first, second = (places[:middle], places[middle:]) if middle else (places, places)
    return DocumentSlice(number, archive_row, first), DocumentSlice(number, archive_row, second)


def _has_both(one: TrainingCorpus) -> bool:
    labels = one.valid_pairs.labels
    return bool(labels.any() and not labels.all())
