"""Searching by the words of a whole document: how fast, and how well, beside other engines?

    python -m benchmarks.speed.peers.search --data DATA --python PYTHON_OF_PEERS

For each corpus with judgements, the test queries are whole documents. All engines have the same
texts, with their titles, and one thread. They answer in turns, a part of the queries each, so that
a slow minute of the machine is everybody's. Longmatch is searched in lexical mode and in this
process, as the peers are in theirs: no HTTP on either side. "by text" counts the words of a new
text; "by id" searches for a stored document. Peers are bm25s (NumPy and numba) and Tantivy, which
gets all words of the document, or chooses the heaviest ("more like this").
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    Spread,
    commit,
    make_record,
    markdown_table,
    percentiles,
    ratios,
    write_record,
)
from benchmarks.quality.retrieval import CorpusPart, find_corpora
from benchmarks.quality.stored_corpus import stored_queries, stored_words
from evaluation.judgements import read_qrels
from evaluation.metrics import ndcg_at_10
from index.corpus.reader import read_corpus
from index.directory.data_directory import DataDirectory
from index.document import Document
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import DEFAULT_RULE
from index.search.records import EncodedQuery, SearchOptions
from index.search.search import search

PEERS = ("bm25s", "bm25s, numba", "Tantivy, all words", "Tantivy, more like this")
OURS = "Longmatch, lexical"
QUERIES = 240
ROUNDS = 6
K = 10
_WORKER = Path(__file__).with_name("search_worker.py")

# Queries, by id -> the seconds of each and the ids that were found for it.
Answer = tuple[list[float], list[list[str]]]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that has indexed a corpus.

    Attributes:
        name: of it.
        indexing: seconds that it took.
        ways: "text" and "id" -> what answers queries so, given by their ids.
    """

    name: str
    indexing: float
    ways: Mapping[str, Callable[[Sequence[str]], Answer]]


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    python: Annotated[Path, typer.Option(help="A Python that has bm25s[core] and tantivy.")],
    split: Annotated[str, typer.Option(help="valid or test: the queries.")] = "test",
) -> None:
    """Measure every engine on every corpus that has judgements."""
    source, versions, results = commit(), dict[str, str](), {}
    for part in find_corpora(data, split):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            results[part.folder.name] = measure(part, python, Path(folder), stack, versions)
    settings = {"split": split, "rounds": ROUNDS, "k": K, "threads": 1, "versions": versions}
    record = make_record("search-peers", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(
    part: CorpusPart, python: Path, folder: Path, stack: ExitStack, versions: dict[str, str]
) -> dict[str, Any]:
    """Return the figures of every engine on one corpus."""
    started = time.perf_counter()
    data = stack.enter_context(stored_words(part, folder))
    indexing = time.perf_counter() - started
    documents = {
        one.id: one.titled_text for one in read_corpus(part.corpus) if isinstance(one, Document)
    }
    queries = stored_queries(data, part)
    engines = [Engine(OURS, indexing, _own_ways(data, queries))]
    corpus = folder / "corpus.jsonl"
    lines = (json.dumps({"id": name, "text": text}) for name, text in documents.items())
    corpus.write_text("\n".join(lines), encoding="utf-8")
    for name in PEERS:
        opened = open_peer(name, python, corpus, documents, versions)
        engines.append(stack.enter_context(opened))
    return {
        "documents": len(documents),
        "engines": _in_turns(engines, list(queries), read_qrels(part.folder / "qrels.tsv")),
    }


def _in_turns(
    engines: Sequence[Engine], queries: Sequence[str], qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Let each engine answer a part of the queries in each round; the first round is not timed."""
    some = np.random.default_rng(0).permutation(len(queries))[:QUERIES]
    parts = [[queries[row] for row in rows] for rows in np.array_split(some, ROUNDS)]
    both = [(one.name, way, ask) for one in engines for way, ask in one.ways.items()]
    seconds: dict[tuple[str, str], list[list[float]]] = {(name, way): [] for name, way, _ in both}
    found: dict[tuple[str, str], dict[str, list[str]]] = {key: {} for key in seconds}
    for asked in (parts[0], *parts):
        for name, way, ask in both:
            taken, ids = ask(asked)
            seconds[name, way].append(taken)
            found[name, way] |= dict(zip(asked, ids, strict=True))
    ours = {
        way: [float(np.median(one)) for one in seconds[OURS, way][1:]] for way in ("text", "id")
    }
    figures: dict[str, Any] = {one.name: {"indexing": one.indexing} for one in engines}
    for (name, way), rounds in seconds.items():
        medians = [float(np.median(one)) for one in rounds[1:]]
        figures[name][way] = {
            "seconds": percentiles([one for own in rounds[1:] for one in own]),
            "times_ours": asdict(ratios(medians, ours[way])),
            "ndcg": _ndcg(found[name, way], qrels),
        }
    return figures


def _ndcg(found: Mapping[str, list[str]], qrels: Mapping[str, Mapping[str, int]]) -> float:
    scores = {
        query: {name: float(-rank) for rank, name in enumerate(one for one in ids if one != query)}
        for query, ids in found.items()
    }
    return float(np.mean(ndcg_at_10(scores, {query: qrels[query] for query in found})))


def _own_ways(
    data: DataDirectory, queries: Mapping[str, EncodedQuery]
) -> dict[str, Callable[[Sequence[str]], Answer]]:
    nothing = ScoreCalibrator(None, None, None)
    options = SearchOptions(top_k=K + 1, mode="lexical", alignment=None)

    def ask(asked: Sequence[EncodedQuery]) -> Answer:
        taken, found = [], []
        for one in asked:
            started = time.perf_counter()
            answer = search(data, one, options, fusion=DEFAULT_RULE, calibrator=nothing, among=None)
            taken.append(time.perf_counter() - started)
            found.append([hit.id for hit in answer.hits])
        return taken, found

    def as_texts(names: Sequence[str]) -> Answer:
        stored = (queries[name] for name in names)
        return ask([EncodedQuery(one.text, one.vector, one.title) for one in stored])

    return {"text": as_texts, "id": lambda names: ask([queries[name] for name in names])}


@contextmanager
def open_peer(
    name: str, python: Path, corpus: Path, documents: Mapping[str, str], versions: dict[str, str]
) -> Iterator[Engine]:
    """Start a worker that indexes the corpus; its packages are added to the versions.

    Raises:
        RuntimeError: it has ended.
    """
    command = [str(python), str(_WORKER), name, str(corpus)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process was started without pipes")

        def read() -> dict[str, Any]:
            if not (line := stdout.readline()):
                raise RuntimeError(f"{name}: the worker ended with status {process.wait()}")
            answer: dict[str, Any] = json.loads(line)
            return answer

        def asking(way: str) -> Callable[[Sequence[str]], Answer]:
            def ask(names: Sequence[str]) -> Answer:
                queries = names if way == "id" else [documents[one] for one in names]
                stdin.write(json.dumps({"by": way, "queries": list(queries)}) + "\n")
                stdin.flush()
                answer = read()
                return answer["seconds"], answer["ids"]

            return ask

        try:
            first = read()
            versions.update(first["versions"])
            yield Engine(name, first["indexing"], {way: asking(way) for way in first["ways"]})
        finally:
            process.kill()


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    header = ["corpus", "engine", "indexing s", "by text, p50 ms", "by id, p50 ms"]
    header += ["by id, of ours", "nDCG@10"]
    rows = []
    for corpus, of_it in record["results"].items():
        for name, one in of_it["engines"].items():
            text, by_id = one.get("text"), one["id"]
            row = [
                *(corpus, name, f"{one['indexing']:.1f}"),
                "" if text is None else _milliseconds(text),
                *(_milliseconds(by_id), str(Spread(**by_id["times_ours"])), f"{by_id['ndcg']:.3f}"),
            ]
            rows.append(row)
    return markdown_table(header, rows)


def _milliseconds(figures: Mapping[str, Any]) -> str:
    return f"{1000 * figures['seconds']['p50']:.1f}"


if __name__ == "__main__":
    typer.run(main)
