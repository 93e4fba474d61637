"""Search engines that have indexed a corpus: in a process of their own, or Longmatch, here."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from benchmarks.speed.peers.answers import K
from index.directory.data_directory import DataDirectory
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.records import AlignmentOptions, EncodedQuery, Mode, SearchOptions
from index.search.search import search

# Queries, by id -> the seconds of each and the ids that were found for it.
Answer = tuple[list[float], list[list[str]]]
Ask = Callable[[Sequence[str]], Answer]

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that has indexed a corpus.

    Attributes:
        indexing: seconds that it took.
        ways: to ask it for documents, given the ids of queries.
    """

    indexing: float
    ways: Mapping[str, Ask]


@contextmanager
def open_process(
    command: Sequence[str | Path], texts: Mapping[str, str], versions: dict[str, str]
) -> Iterator[Engine]:
    """Start a worker that indexes a corpus with one thread; its packages are added to the versions.

    Args:
        command: Python, a module that calls `answers.serve`, and its arguments.
        texts: of the documents by id; what is asked in the way "text" gets these.
        versions: of packages.

    Raises:
        RuntimeError: it has ended.
    """
    name = " ".join(map(str, command[1:-1]))
    with subprocess.Popen(
        [str(command[0]), "-m", *map(str, command[1:])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | _ONE_THREAD | {"PYTHONPATH": str(ROOT)},
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process was started without pipes")

        def read() -> dict[str, Any]:
            if not (line := stdout.readline()):
                raise RuntimeError(f"{name}: the worker ended with status {process.wait()}")
            answer: dict[str, Any] = json.loads(line)
            return answer

        def asking(way: str) -> Ask:
            def ask(names: Sequence[str]) -> Answer:
                queries = [texts[one] for one in names] if way == "text" else list(names)
                stdin.write(json.dumps({"by": way, "queries": queries}) + "\n")
                stdin.flush()
                answer = read()
                both = zip(names, answer["ids"], strict=True)
                return answer["seconds"], [[i for i in ids if i != one][:K] for one, ids in both]

            return ask

        try:
            first = read()
            versions.update(first["versions"])
            yield Engine(first["indexing"], {way: asking(way) for way in first["ways"]})
        finally:
            process.kill()


def ask_longmatch(
    data: DataDirectory,
    queries: Mapping[str, EncodedQuery],
    mode: Mode,
    alignment: AlignmentOptions | None,
    fusion: LinearFusion,
    *,
    by_text: bool = False,
) -> Ask:
    """Return what searches a data directory, in one mode, by stored documents.

    Args:
        data: where to search.
        queries: stored documents by id.
        mode: of the search.
        alignment: of the best candidates; None for none.
        fusion: how scores are combined.
        by_text: search by the text instead, whose words are then counted.
    """
    nothing = ScoreCalibrator(None, None, None)
    options = SearchOptions(top_k=K + 1 if by_text else K, mode=mode, alignment=alignment)

    def ask(names: Sequence[str]) -> Answer:
        taken, found = [], []
        for name in names:
            one = queries[name]
            if by_text:
                one = EncodedQuery(one.text, one.vector, one.title)
            started = time.perf_counter()
            answer = search(data, one, options, fusion=fusion, calibrator=nothing, among=None)
            taken.append(time.perf_counter() - started)
            found.append([hit.id for hit in answer.hits if hit.id != name][:K])
        return taken, found

    return ask
