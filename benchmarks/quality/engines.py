"""Does Qdrant answer as the local engine does, and how long does either take?

    python -m benchmarks.quality.engines LIBRARY --qrels QRELS [--server qdrant://HOST:6333]

The judged documents of a data directory are the queries, as stored documents and in hybrid mode
with alignment. Without a server, its core runs in this process: times are then without a network.
The engines answer in turns.
"""

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, markdown_table, percentiles, publish
from encoder.checkpoint import find_checkpoint, load_checkpoint
from evaluation.judgements import read_qrels
from evaluation.metrics import in_order, ndcg_at_10
from index.directory.data_directory import STORE_FILE, DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.search.calibrate import Scoring
from index.search.rank import search
from index.search.records import AlignmentOptions, SearchOptions
from index.search.score import LinearFusion, read_fusion
from index.store.document_store import DocumentStore
from index.store.schema import read_space
from service.threads import limit_numpy_threads

if TYPE_CHECKING:
    from index.engine.qdrant.engine import QdrantEngine

BENCHMARK = "engines"
Asked = tuple[dict[str, list[str]], list[float], list[float]]  # ids, seconds, of the processor
_OPTIONS = SearchOptions(top_k=10, alignment=AlignmentOptions(budget_seconds=math.inf))


def main(
    library: Annotated[Path, typer.Argument(help="A data directory.")],
    qrels: Annotated[Path, typer.Option(help="Judgements of its documents.")],
    encoder: Annotated[Path, typer.Option(help="That made its vectors.")],
    queries: Annotated[int, typer.Option(help="At most.")] = 500,
    server: Annotated[str | None, typer.Option(help="qdrant://HOST:6333; else its core.")] = None,
) -> None:
    """Ask both engines the same, and compare what they answer."""
    from service.encode import find_stored  # tables are printed without the service

    source = commit()
    checkpoint = load_checkpoint(find_checkpoint(encoder))
    rule = read_fusion(checkpoint).resolve()
    limit_numpy_threads()  # as in the process of the server
    space = asdict(read_space(library / STORE_FILE))
    with closing(open_data_directory(library, **space)) as local:
        judged = read_qrels(qrels)
        found = find_stored(local, sorted(judged))
        wanted: list[tuple[str, EncodedQuery]] = list(found.items())
        chosen = [wanted[row] for row in range(0, len(wanted), -(-len(wanted) // queries))]
        store = DocumentStore(local.store.path, **space, searched_elsewhere=True)
        with closing(store), _engine(store, server) as engine:
            started = time.perf_counter()
            engine.rebuild()
            loaded = time.perf_counter() - started
            both = {"local": local, "qdrant": replace(local, store=store, engine=engine)}
            answers = _ask(both, chosen, rule)
        documents = len(local.store)
        stored = local.store.content_hashes(sorted({n for found in judged.values() for n in found}))
    names = [name for name, _ in chosen]
    known = {name: {n: r for n, r in judged[name].items() if n in stored} for name in names}
    pairs = [(answers["local"][0][n], answers["qdrant"][0][n]) for n in names]
    results = {
        "documents": documents,
        "queries": len(names),
        "loading_seconds": loaded,
        "same_ten": float(np.mean([len({*a} & {*b}) / max(len(a), 1) for a, b in pairs])),
        "same_first": float(np.mean([a[:1] == b[:1] for a, b in pairs])),
        "engines": {
            name: {
                "ndcg": float(ndcg_at_10({n: in_order(found[n]) for n in names}, known).mean()),
                **percentiles(seconds),
                "processor": median(processor),
            }
            for name, (found, seconds, processor) in answers.items()
        },
    }
    settings = {"library": library.name, "queries": queries, "server": server is not None}
    publish(BENCHMARK, source, settings, results, table)


def table(record: dict[str, Any]) -> str:
    """Return the table of a record."""
    results, core = record["results"], not record["settings"]["server"]
    rows = [
        [name, f"{found['ndcg']:.4f}", *(1000 * found[n] for n in ("p50", "p95", "processor"))]
        for name, found in results["engines"].items()
    ]
    columns = ["engine", "nDCG@10", "p50 ms", "p95 ms", "processor, p50 ms"]
    head = (
        f"{results['documents']:,} documents of {record['settings']['library']}, "
        f"{results['queries']} of them queries; "
        f"{'the core of Qdrant in the process' if core else 'a Qdrant server'}, loaded in "
        f"{results['loading_seconds']:.0f} s. The same first ten: {results['same_ten']:.4f}; the "
        f"same first: {results['same_first']:.4f}."
    )
    return f"{head}\n\n{markdown_table(columns, rows)}"


@contextmanager
def _engine(store: DocumentStore, server: str | None) -> Iterator["QdrantEngine"]:
    from benchmarks.edge_client import edge_client  # tables are printed without these
    from index.engine.qdrant.engine import QdrantEngine, connect

    if server is not None:
        yield connect(store, server)
        return
    with tempfile.TemporaryDirectory() as folder:
        client = edge_client(Path(folder))
        yield QdrantEngine(store, client, "the core of Qdrant")
        client.close()


def _ask(
    engines: dict[str, DataDirectory], queries: list[tuple[str, EncodedQuery]], rule: LinearFusion
) -> dict[str, Asked]:
    """Return what each engine answers, in turns."""
    answers: dict[str, Asked] = {name: ({}, [], []) for name in engines}
    for name, query in queries:
        for engine, data in engines.items():
            started, processor = time.perf_counter(), time.process_time()
            answer = search(data, query, _OPTIONS, scoring=Scoring(rule))
            ids, seconds, of_processor = answers[engine]
            seconds.append(time.perf_counter() - started)
            of_processor.append(time.process_time() - processor)
            ids[name] = [hit.id for hit in answer.hits]
    return answers


if __name__ == "__main__":
    typer.run(main)
