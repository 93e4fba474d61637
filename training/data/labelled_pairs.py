"""Labelled pairs as arrays: tokens, labels and groups of many pairs in one table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from encoder.atomic_files import replace_durably
from encoder.reranker.pair_tokenizer import PairTokens, join_pair

_FIELDS = ("tokens", "ends", "firsts", "labels", "groups", "scores")


@dataclass(frozen=True, slots=True)
class LabelledPairDataset:
    """P pairs.

    Attributes:
        tokens: uint32[T], token ids of all pairs, without special tokens.
        ends: Int64[P], where each pair ends in them.
        firsts: Int64[P], how many tokens of each pair are of its first text.
        labels: Float32[P], 1 for a match and 0 for none.
        groups: Int64[P], the corpus of a training pair, the query of a validation pair.
        scores: Float32[P] of the first stage; 0 where nothing was ranked.
    """

    tokens: NDArray[Any]
    ends: Int64
    firsts: Int64
    labels: Float32
    groups: Int64
    scores: Float32

    def __len__(self) -> int:
        return len(self.ends)

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
        begin = int(self.ends[row - 1]) if row else 0
        cut = begin + int(self.firsts[row])
        sides = self.tokens[begin:cut].tolist(), self.tokens[cut : int(self.ends[row])].tolist()
        first, second = sides[::-1] if swapped else sides
        return join_pair(first[:most], second[:most], start_token, end_token)


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """The tokens of one pair, and what is known of it; see `LabelledPairDataset`."""

    tokens: PairTokens
    label: float
    group: int
    score: float = 0.0


def make_pair_table(pairs: Iterable[LabelledPair]) -> LabelledPairDataset:
    """Make a table of pairs."""
    tokens: list[NDArray[Any]] = []
    firsts: list[int] = []
    known: list[tuple[float, int, float]] = []
    for pair in pairs:
        words = pair.tokens.special == 0
        tokens.append(pair.tokens.input_ids[words].astype(np.uint32))
        firsts.append(int((pair.tokens.token_types[words] == 0).sum()))
        known.append((pair.label, pair.group, pair.score))
    return LabelledPairDataset(
        tokens=np.concatenate([np.empty(0, dtype=np.uint32), *tokens]),
        ends=np.cumsum([len(one) for one in tokens], dtype=np.int64),
        firsts=np.array(firsts, dtype=np.int64),
        labels=np.array([label for label, _, _ in known], dtype=np.float32),
        groups=np.array([group for _, group, _ in known], dtype=np.int64),
        scores=np.array([score for _, _, score in known], dtype=np.float32),
    )


def join_tables(tables: Sequence[LabelledPairDataset]) -> LabelledPairDataset:
    """Concatenate tables."""
    starts = np.cumsum([0, *(len(table.tokens) for table in tables[:-1])])
    ends = [table.ends + start for table, start in zip(tables, starts, strict=True)]
    columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in _FIELDS}
    return LabelledPairDataset(**(columns | {"ends": np.concatenate(ends)}))


def write_pair_table(path: Path, table: LabelledPairDataset) -> None:
    """Write a table as .npz, atomically.

    Raises:
        OSError: it could not be written.
    """
    unfinished = path.with_name(path.name + ".partial")
    with unfinished.open("wb") as file:
        np.savez(file, **{name: getattr(table, name) for name in _FIELDS})
    replace_durably(unfinished, path)


def read_pair_table(path: Path) -> LabelledPairDataset:
    """Read what `write_pair_table` wrote.

    Raises:
        OSError, ValueError, KeyError: it is missing or damaged.
    """
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return LabelledPairDataset(**{name: arrays[name] for name in _FIELDS})
