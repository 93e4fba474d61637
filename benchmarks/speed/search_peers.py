"""Searching by all words of a document: how fast and how well, compared with other engines?

    python -m benchmarks.speed.search_peers --data DATA --python PYTHON_OF_PEERS

For each corpus with judgements, the test queries are whole documents. All engines have the same
texts, with their titles, and one thread as far as they can be limited. They answer in turns, a part
of the queries each, so that a slow minute of the machine is everybody's. Longmatch is searched in
this process, the peers each in one of theirs: no HTTP on either side. "by text" counts the words of
a new text; "by id" searches for a stored document: what a peer needs of it, such as its words, is
made ready before the clock starts.

The peers are bm25s (NumPy and numba) and Tantivy, which gets all words of the document or chooses
the heaviest ("more like this"). Each corpus is a record of its own.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from benchmarks.common import (
    ROOT,
    Spread,
    ask_worker,
    commit,
    markdown_table,
    percentiles,
    publish,
    ratios,
    read_answer,
)
from benchmarks.quality.retrieval import CorpusPart, find_corpora
from benchmarks.speed.search_worker import OPEN, K
from encoder.blocks import Receipt
from evaluation.judgements import Qrels
from evaluation.metrics import ndcg_at_10
from index.corpus.reader import read_corpus
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.engine.parallel_steps import PARALLEL_STEPS
from index.engine.port import EncodedQuery
from index.search.calibrate import Scoring
from index.search.rank import search
from index.search.records import SearchOptions
from index.search.score import LinearFusion
from index.store.records import EncodedDocument

BENCHMARK = "search-peers"  # and the name of the corpus
CORPORA = ("proposals", "rfc", "wikispeedia")  # that there are results of
QUERIES, ROUNDS = 120, 6
PUT_TOGETHER = 200
WORDS = "Longmatch, lexical"
_RULE = LinearFusion(0.5, 0.5, 0.5, expected_slope=0.5, expected_intercept=0.1)  # of no effect here
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

# Queries, by id -> the seconds of each and the ids that were found for it.
Ask = Callable[[Sequence[str]], tuple[list[float], list[list[str]]]]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that has indexed a corpus: the seconds that took, and its ways, "text" and "id"."""

    indexing: float
    ways: Mapping[str, Ask]


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    python: Annotated[Path, typer.Option(help="An interpreter that has bm25s and Tantivy.")],
    corpus: Annotated[str | None, typer.Option(help="Only the corpus of this name.")] = None,
) -> None:
    """Measure every engine on every corpus that has judgements."""
    source = commit()
    PARALLEL_STEPS.disable()
    for part in find_corpora(data, "test"):
        name = part.folder.name
        if corpus not in (None, name):
            continue
        versions: dict[str, str] = {}
        with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
            results = measure(part, python, Path(folder), versions)
        settings = {"split": "test", "rounds": ROUNDS, "k": K, "threads": 1, "versions": versions}
        publish(f"{BENCHMARK}-{name}", source, settings, {name: results}, table)


def measure(
    part: CorpusPart, python: Path, folder: Path, versions: dict[str, str]
) -> dict[str, Any]:
    """Measure all engines on one corpus; `versions` receives those of their packages."""
    documents = [
        document for document in read_corpus(part.corpus) if isinstance(document, Document)
    ]
    texts = {document.id: document.titled_text for document in documents}
    corpus = folder / "corpus.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        for name, text in texts.items():
            file.write(json.dumps({"id": name, "text": text}) + "\n")
    qrels = part.judgements()
    queries = np.random.default_rng(0).permutation(sorted(qrels))[:QUERIES].tolist()
    with ExitStack() as stack:
        engines = {WORDS: stack.enter_context(open_longmatch(documents, queries, folder / "data"))}
        for name in OPEN:
            process = open_process(python, name, corpus, texts, versions)
            engines[name] = stack.enter_context(process)
        figures = in_turns(engines, queries, qrels)
    return {"documents": len(texts), "queries": len(queries), "engines": figures}


@contextmanager
def open_longmatch(
    documents: Sequence[Document], queries: Sequence[str], path: Path
) -> Iterator[Engine]:
    """Store documents in a new data directory for lexical mode alone: nothing is encoded."""
    started = time.perf_counter()
    vector = np.ones(1, dtype=np.float32)
    with closing(
        open_data_directory(path, fingerprint="0" * 64, dimension=1, find_families=False)
    ) as data:
        entries = [
            EncodedDocument(document, vector, Receipt(1, 1, 1, 0, 1)) for document in documents
        ]
        for start in range(0, len(entries), PUT_TOGETHER):
            data.index.apply(data.store.put(entries[start : start + PUT_TOGETHER]))
        indexing = time.perf_counter() - started
        stored = data.store.find(queries)
        by_id, by_text = {}, {}
        for name, found in stored.items():
            text, title = found.document.text, found.document.title
            by_id[name] = EncodedQuery(text, vector, title, vector_id=found.vector_id)
            by_text[name] = EncodedQuery(text, vector, title)
        ways = {
            "id": _asking_longmatch(data, by_id, K),
            "text": _asking_longmatch(data, by_text, K + 1),  # it finds itself
        }
        yield Engine(indexing, ways)


def _asking_longmatch(data: DataDirectory, queries: Mapping[str, EncodedQuery], top_k: int) -> Ask:
    scoring = Scoring(_RULE)
    options = SearchOptions(top_k=top_k, mode="lexical", alignment=None)

    def ask(names: Sequence[str]) -> tuple[list[float], list[list[str]]]:
        seconds, found = [], []
        for name in names:
            started = time.perf_counter()
            answer = search(data, queries[name], options, scoring=scoring)
            seconds.append(time.perf_counter() - started)
            found.append([hit.id for hit in answer.hits if hit.id != name][:K])
        return seconds, found

    return ask


@contextmanager
def open_process(
    python: Path, engine: str, corpus: Path, texts: Mapping[str, str], versions: dict[str, str]
) -> Iterator[Engine]:
    """Start a worker that indexes a corpus with one thread; its packages are added to `versions`.

    Raises:
        RuntimeError: it has ended.
    """
    with subprocess.Popen(
        [str(python), "-m", "benchmarks.speed.search_worker", engine, str(corpus)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | _ONE_THREAD | {"PYTHONPATH": str(ROOT)},
    ) as process:

        def asking(way: str) -> Ask:
            def ask(names: Sequence[str]) -> tuple[list[float], list[list[str]]]:
                queries = [texts[name] for name in names] if way == "text" else list(names)
                answer = ask_worker(process, {"by": way, "queries": queries})
                both = zip(names, answer["ids"], strict=True)
                return answer["seconds"], [
                    [found for found in ids if found != name][:K] for name, ids in both
                ]

            return ask

        try:
            first = read_answer(process)
            versions.update(first["versions"])
            yield Engine(first["indexing"], {way: asking(way) for way in first["ways"]})
        finally:
            process.kill()


def in_turns(engines: Mapping[str, Engine], queries: Sequence[str], qrels: Qrels) -> dict[str, Any]:
    """Let all answer the same queries in rounds, after an untimed round.

    By id goes before by text, for all engines: the words of a document that was searched for just
    before are in the caches of the processor.
    """
    parts = [list(map(str, part)) for part in np.array_split(queries, min(ROUNDS, len(queries)))]
    ways = sorted(
        ((way, name, ask) for name, engine in engines.items() for way, ask in engine.ways.items()),
        key=lambda row: row[0],
    )
    found = {
        (name, way): dict(zip(queries, ask(queries)[1], strict=True)) for way, name, ask in ways
    }
    seconds: dict[tuple[str, str], list[list[float]]] = {key: [] for key in found}
    for part in parts:
        for way, name, ask in ways:
            seconds[name, way].append(ask(part)[0])
    medians = {key: [float(np.median(turn)) for turn in turns] for key, turns in seconds.items()}
    figures: dict[str, Any] = {
        name: {"indexing": engine.indexing, "base": WORDS} for name, engine in engines.items()
    }
    for name, way in found:
        figures[name][way] = {
            "seconds": percentiles([value for turn in seconds[name, way] for value in turn]),
            "times_ours": asdict(ratios(medians[name, way], medians[WORDS, way])),
            "ndcg": mean_ndcg(found[name, way], qrels),
        }
    return figures


def mean_ndcg(found: Mapping[str, Sequence[str]], qrels: Qrels) -> float:
    """Return the mean nDCG@10 of what was found, best first, for each query."""
    scores = {
        query: {name: float(-rank) for rank, name in enumerate(ids)} for query, ids in found.items()
    }
    return float(np.mean(ndcg_at_10(scores, {query: qrels[query] for query in found})))


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    header = ["engine", "indexing s", "by text, p50 ms", "by id, p50 ms", "p95"]
    header += ["by id, of ours", "nDCG@10"]
    return "\n\n".join(
        f"{corpus}, by words\n\n"
        + markdown_table(
            header, [_row(name, figures) for name, figures in of_it["engines"].items()]
        )
        for corpus, of_it in record["results"].items()
    )


def _row(name: str, figures: Mapping[str, Any]) -> list[str]:
    by_id = figures["id"]
    return [
        name,
        f"{figures['indexing']:.1f}",
        _milliseconds(figures["text"], "p50") if "text" in figures else "",
        _milliseconds(by_id, "p50"),
        _milliseconds(by_id, "p95"),
        str(Spread(**by_id["times_ours"])),
        f"{by_id['ndcg']:.3f}",
    ]


def _milliseconds(figures: Mapping[str, Any], which: str) -> str:
    return f"{1000 * figures['seconds'][which]:.1f}"


if __name__ == "__main__":
    typer.run(main)
