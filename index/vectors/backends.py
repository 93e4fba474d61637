"""The engines that can hold the searchable copy, and how each of them makes and loads an index."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from encoder.arrays import Float32
from index.vectors.exact_index import ExactIndex, load_exact_index
from index.vectors.faiss.faiss_index import load_faiss_index, train_faiss_index
from index.vectors.lists import choose_nlist
from index.vectors.vector_index import Precision, VectorIndex


@dataclass(frozen=True, slots=True)
class Backend:
    """An engine, with the precision that it holds vectors in.

    Attributes:
        name: of both, as the manifest of a snapshot has it.
        choose_nlist: number of vectors -> number of lists.
        train: sample Float32[N, dimension], number of lists -> an empty index.
        load: reads what the engine's `save` wrote. Raises SnapshotError.
        settle: called once all vectors were added to a new index, before its recall is measured.
        drop_others: drops what the engine keeps for the same data directory, but for what these
            saved files and this index need.
        problem: what the engine failed in last; None while it works.
        check: asks the engine whether it works. Raises VectorEngineError.
        keeps_changes: the engine keeps vectors by itself, so that what is loaded from a saved file
            has later changes, too.
    """

    name: str
    choose_nlist: Callable[[int], int]
    train: Callable[[Float32, int], VectorIndex]
    load: Callable[[Path], VectorIndex]
    settle: Callable[[VectorIndex], None] = lambda index: None
    drop_others: Callable[[Collection[Path], VectorIndex | None], None] = lambda saved, live: None
    problem: Callable[[], str | None] = lambda: None
    check: Callable[[], None] = lambda: None
    keeps_changes: bool = False


def _one_list(count: int) -> int:
    return 1


def _empty_exact_index(sample: Float32, nlist: int) -> VectorIndex:
    return ExactIndex(np.zeros(0, dtype=np.int64), sample[:0])


def _faiss(precision: Precision) -> Backend:
    return Backend(
        f"faiss-{precision}",
        choose_nlist,
        partial(train_faiss_index, precision=precision),
        partial(load_faiss_index, precision=precision),
    )


FAISS_BACKENDS: dict[Precision, Backend] = {
    "fp32": _faiss("fp32"),
    "fp16": _faiss("fp16"),
    "int8": _faiss("int8"),
}
EXACT = Backend("exact", _one_list, _empty_exact_index, load_exact_index)

DEFAULT_PRECISION: Precision = "int8"


def backend_named(name: str) -> Backend | None:
    """Return the FAISS backend that the manifest of a snapshot names; None for any other name."""
    return next((one for one in FAISS_BACKENDS.values() if one.name == name), None)
