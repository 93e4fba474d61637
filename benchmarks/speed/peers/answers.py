"""How a search engine in a process of its own answers `benchmarks.speed.peers.search`.

Runs under the Python of the engine and imports nothing of Longmatch. The first line of the answer
says the versions, the ways to ask and the seconds of indexing. After it, each line of standard
input is {"by": a way, "queries": […]}, and each line of the answer {"seconds": […], "ids": [[…]]},
of the eleven best of each: a stored document is among what its text finds.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

K = 10
MOST = K + 1  # of an answer


@dataclass(frozen=True, slots=True)
class Way:
    """A way to ask an engine.

    Attributes:
        find: what `prepare` returns -> the ids of the best, best first. This is timed.
        prepare: a text, or the id of a stored document -> the query. An engine may have this of
            its documents, and it is not timed.
    """

    find: Callable[[Any], list[str]]
    prepare: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True)
class Corpus:
    """What an engine indexes: ids, texts, and the document vectors if they were given."""

    ids: list[str]
    texts: list[str]
    vectors: list[list[float]]

    @property
    def text_of(self) -> dict[str, str]:
        """The texts by id."""
        return dict(zip(self.ids, self.texts, strict=True))


def serve(path: str, make: Callable[[Corpus], Mapping[str, Way]], packages: Sequence[str]) -> None:
    """Index a corpus, JSON Lines of id, text and maybe vector; answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    vectors = [one["vector"] for one in lines if "vector" in one]
    corpus = Corpus([one["id"] for one in lines], [one["text"] for one in lines], vectors)
    del lines
    started = time.perf_counter()
    ways = make(corpus)
    first = {
        "indexing": time.perf_counter() - started,
        "ways": list(ways),
        "versions": {one: version(one) for one in packages},
    }
    gc.collect()
    gc.freeze()  # an index of Python objects would be looked through again and again
    answers.write(json.dumps(first) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(ways, json.loads(line))) + "\n")
        answers.flush()


def _answer(ways: Mapping[str, Way], asked: Mapping[str, Any]) -> dict[str, Any]:
    way, seconds, ids = ways[asked["by"]], [], []
    for one in asked["queries"]:
        query = way.prepare(one)
        started = time.perf_counter()
        found = way.find(query)
        seconds.append(time.perf_counter() - started)
        ids.append(found)
    return {"seconds": seconds, "ids": ids}
