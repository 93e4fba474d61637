"""R4: random operations on store and index, each answer compared with a dict and brute force."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from index.vectors.lists import ONE_LIST_BELOW
from index.vectors.vector_index import NO_VECTOR
from tests.reliability.numbered_documents import (
    DIMENSION,
    contents,
    entry_of,
    fill,
    index_problems,
    open_numbered,
    random_unit_vector,
    vector_of,
)

_WEIGHTS = {
    "match": 500, "add": 150, "change": 100, "again": 50, "delete": 180, "delete unknown": 10,
    "restart": 3, "retrain": 2, "rebuild": 1, "publish": 3,
}  # fmt: skip
_CHECKED_BY_SEARCH = 100


class WrongAnswerError(AssertionError):
    """An operation did not do what the dict says; the message has seed and operation."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Number of operations of each kind; all were correct."""

    operations: int
    kinds: dict[str, int]
    generations: int


class ModelCheck:
    """A data directory and a dict with its expected contents."""

    def __init__(self, path: Path, seed: int) -> None:
        """Fill a new data directory with enough documents for inverted lists."""
        self._path = path
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._names = [f"d{number}" for number in range(ONE_LIST_BELOW + 1_000)]
        self._rows = np.zeros((len(self._names), DIMENSION), dtype=np.float32)
        self._alive = np.zeros(len(self._names), dtype=np.bool_)
        self._versions: dict[str, int] = {}
        self._next_version = 1
        self._data = open_numbered(path)
        filled = self._names[: ONE_LIST_BELOW + 100]
        fill(self._data, filled)
        for name in filled:
            self._record(name, 0)

    @property
    def generation(self) -> int:
        """The generation of the index."""
        return self._data.index.manifest.generation

    def close(self) -> None:
        """Close the data directory."""
        self._data.close()

    def step(self) -> str:
        """Run one random operation, check its result, and return its kind."""
        [kind] = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        self._operations()[kind]()
        return kind

    def _operations(self) -> dict[str, Callable[[], object]]:
        return {
            "match": self._match, "add": lambda: self._put(self._absent()),
            "change": lambda: self._put(self._present()), "again": self._put_again,
            "delete": lambda: self._delete(self._present()),
            "delete unknown": lambda: self._delete(["unknown", *self._absent()]),
            "restart": self._restart, "retrain": partial(self._data.index.retrain, 0.5),
            "rebuild": self._data.index.rebuild, "publish": self._data.index.publish,
        }  # fmt: skip

    def check(self) -> None:
        """Compare everything that the data directory holds with the dict."""
        versions, twice = contents(self._data)
        require_equal(versions, self._versions, "documents of the store")
        require_equal(twice, 0, "duplicate documents")
        some = self._random.sample(sorted(versions), min(_CHECKED_BY_SEARCH, len(versions)))
        require_equal(index_problems(self._data, some, versions), [], "problems of the index")

    def _match(self) -> None:
        query = random_unit_vector(self._numbers)
        if self._random.random() < 0.5:
            query = self._rows[int(self._present()[0][1:])]
        index = self._data.index
        k = self._random.randint(1, 12)
        exact = self._random.random() < 0.5
        found = index.search(query[None], k, nprobe=index.nlist if exact else None)
        require_equal(found.generation, index.manifest.generation, "generation")
        require_equal(found.sequence, self._data.store.sequence, "sequence")
        ids, scores = found.ids[0].tolist(), found.scores[0]
        documents = self._data.store.get([found_id for found_id in ids if found_id != NO_VECTOR])
        names = [documents[found_id].id for found_id in ids if found_id in documents]
        require_equal(len(names), k, "matches, each of a live document")
        best = np.sort(self._rows[self._alive] @ query)[: -k - 1 : -1]
        expected = np.array([self._rows[int(name[1:])] @ query for name in names])
        require_equal(
            bool(np.allclose(scores, expected, atol=1e-5)),
            True,
            "scores are those of the documents",
        )
        if exact:
            require_equal(bool(np.allclose(scores, best, atol=1e-5)), True, "the best are found")
        elif (query == self._rows[int(names[0][1:])]).all():
            require_equal(bool(scores[0] > 1 - 1e-5), True, "a document finds itself")

    def _put(self, names: list[str]) -> None:
        version = self._next_version
        self._next_version += 1
        change = self._data.store.put([entry_of(name, version) for name in names])
        require_equal(len(change.changed), len(names), "added")
        require_equal(len(change.removed), len(set(names) & set(self._versions)), "replaced")
        self._data.index.apply(change)
        for name in names:
            self._record(name, version)

    def _put_again(self) -> None:
        names = self._present()
        change = self._data.store.put([entry_of(name, self._versions[name]) for name in names])
        require_equal((change.changed, change.removed), ([], []), "changes by the same text")
        self._data.index.apply(change)

    def _delete(self, names: list[str]) -> None:
        change = self._data.store.delete(names)
        require_equal(len(change.removed), len(set(names) & set(self._versions)), "deleted")
        self._data.index.apply(change)
        for name in names:
            self._forget(name)

    def _restart(self) -> None:
        self._data.close()
        self._data = open_numbered(self._path)
        self.check()

    def _record(self, name: str, version: int) -> None:
        self._versions[name] = version
        self._rows[int(name[1:])] = vector_of(name, version)
        self._alive[int(name[1:])] = True

    def _forget(self, name: str) -> None:
        if name in self._versions:
            del self._versions[name]
            self._alive[int(name[1:])] = False

    def _present(self) -> list[str]:
        return self._sample(np.flatnonzero(self._alive).tolist())

    def _absent(self) -> list[str]:
        return self._sample(np.flatnonzero(~self._alive).tolist())

    def _sample(self, rows: list[int]) -> list[str]:
        chosen = self._random.sample(rows, min(len(rows), self._random.randint(1, 4)))
        return [self._names[row] for row in chosen]


def run_model(path: Path, operations: int, seed: int) -> ModelReport:
    """Run the check in a new data directory.

    Raises:
        WrongAnswerError: a result differed from the dict.
    """
    check = ModelCheck(path, seed)
    kinds: Counter[str] = Counter()
    try:
        for _ in range(operations):
            kinds[check.step()] += 1
        check.check()
        return ModelReport(operations, dict(kinds), check.generation)
    except Exception as error:
        raise WrongAnswerError(
            f"seed {seed}, operation {kinds.total()} after {dict(kinds)}: {error}"
        ) from error
    finally:
        check.close()


def require_equal(found: object, expected: object, what: str) -> None:
    """Compare an answer with what is right.

    Raises:
        WrongAnswerError: they differ.
    """
    if found != expected:
        raise WrongAnswerError(f"{what}: {str(found)[:500]}, not {str(expected)[:500]}")
