"""Does Qdrant answer as the local engine does, and how long does either take?

    python -m benchmarks.quality.engines LIBRARY --qrels QRELS [--server qdrant://HOST:6333]
    python -m benchmarks.quality.engines --articles 100000

The judged documents of a data directory are the queries, as stored documents and in hybrid mode
with alignment. Without a server, its core runs in this process: times are then without a network.
The engines answer in turns. Articles are made up, and asked of Qdrant alone.
"""

import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from benchmarks.articles import article_model
from benchmarks.common import SEED, commit, markdown_table, percentiles, publish
from benchmarks.server.server import resident_megabytes
from encoder.alignment.space import open_space
from encoder.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from evaluation.judgements import Qrels, read_qrels
from evaluation.metrics import in_order, ndcg_at_10
from index.directory.data_directory import STORE_FILE, DataDirectory, open_data_directory
from index.engine.query import EncodedQuery, SearchStage
from index.search.calibrate import ScoreCalibrator
from index.search.rank import search
from index.search.records import AlignmentOptions, SearchOptions
from index.search.score import LinearFusion, read_fusion
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument
from index.store.schema import read_space
from service.threads import limit_numpy_threads

if TYPE_CHECKING:
    from index.engine.qdrant.engine import QdrantEngine

BENCHMARK, SCALE = "engines", "engine-scale"
_BLOCKS, _PUT_TOGETHER = 20, 500  # of an article; articles
_OPTIONS = SearchOptions(top_k=10, alignment=AlignmentOptions(budget_seconds=math.inf))
_NO_CALIBRATION = ScoreCalibrator(None, None, None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What an engine answers to a query, its seconds, those of the processor, and of each stage."""

    ids: list[str]
    seconds: float
    processor: float
    stages: Mapping[SearchStage, float]


def main(
    encoder: Annotated[Path, typer.Option(help="That made its vectors.")],
    library: Annotated[Path | None, typer.Argument(help="A data directory.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgements of its documents.")] = None,
    queries: Annotated[int, typer.Option(help="At most.")] = 500,
    server: Annotated[str | None, typer.Option(help="qdrant://HOST:6333; else its core.")] = None,
    articles: Annotated[int, typer.Option(help="Made up, without a library.")] = 10_000,
) -> None:
    """Ask both engines the same, and compare what they answer; or Qdrant about many documents."""
    source, settings = commit(), {"queries": queries, "server": server is not None}
    checkpoint = load_checkpoint(find_checkpoint(encoder))
    limit_numpy_threads()  # as in the process of the server
    if library is None or qrels is None:
        found = _measure_articles(articles, checkpoint, queries, server)
        publish(SCALE, source, settings, found, scale_table)
    else:
        results = _compare(library, read_qrels(qrels), checkpoint, queries, server)
        publish(BENCHMARK, source, {"library": library.name, **settings}, results, table)


def _compare(
    library: Path, judged: Qrels, checkpoint: Checkpoint, queries: int, server: str | None
) -> dict[str, Any]:
    from service.encode import find_stored  # tables are printed without the service

    space = asdict(read_space(library / STORE_FILE))
    with closing(open_data_directory(library, **space)) as local:
        found = find_stored(local, sorted(judged))
        wanted = [(name, text.to_query()) for name, text in found.items()]
        chosen = dict(wanted[:: -(-len(wanted) // queries)])
        store = DocumentStore(local.store.path, **space, searched_elsewhere=True)
        with closing(store), _engine(store, server) as engine:
            started = time.perf_counter()
            engine.rebuild()
            loaded = time.perf_counter() - started
            both = {"local": local, "qdrant": replace(local, store=store, engine=engine)}
            answers = _ask(both, chosen, read_fusion(checkpoint).resolve())
        documents = len(local.store)
        stored = local.store.content_hashes(sorted({n for found in judged.values() for n in found}))
    known = {name: {n: r for n, r in judged[name].items() if n in stored} for name in chosen}
    pairs = [(answers["local"][name].ids, answers["qdrant"][name].ids) for name in chosen]
    return {
        "documents": documents,
        "queries": len(chosen),
        "loading_seconds": loaded,
        "same_ten": float(np.mean([len({*a} & {*b}) / max(len(a), 1) for a, b in pairs])),
        "same_first": float(np.mean([a[:1] == b[:1] for a, b in pairs])),
        "engines": {
            name: {
                "ndcg": float(
                    ndcg_at_10({n: in_order(asked.ids) for n, asked in found.items()}, known).mean()
                ),
                **percentiles([asked.seconds for asked in found.values()]),
                "processor": median(asked.processor for asked in found.values()),
            }
            for name, found in answers.items()
        },
    }


def _measure_articles(
    number: int, checkpoint: Checkpoint, queries: int, server: str | None
) -> dict[str, Any]:
    """Measure what articles of their first 20 blocks cost in Qdrant, and searches by their ids."""
    model = article_model(SEED, checkpoint.block_dimension, checkpoint.dimension)
    with tempfile.TemporaryDirectory() as folder:
        store = DocumentStore(
            Path(folder, STORE_FILE),
            fingerprint=checkpoint.fingerprint,
            dimension=checkpoint.dimension,
            find_families=False,
            space=open_space(checkpoint),
            searched_elsewhere=True,
        )
        with closing(store), _engine(store, server) as engine:
            started = [time.perf_counter()]
            for start in range(0, number, _PUT_TOGETHER):
                some = range(start, min(start + _PUT_TOGETHER, number))
                store.put([_shortened(model.article(n)) for n in some])
            started += [time.perf_counter()]
            engine.rebuild()
            started += [time.perf_counter()]
            if server is None:  # a server does it by itself
                for shard in cast(Any, engine.client).shards.values():
                    shard.optimize()
            started += [time.perf_counter()]
            data = DataDirectory(Path(folder), store, engine, ExitStack())
            names = [f"article{n}" for n in range(0, number, -(-number // queries))]
            ids = {found.document.id: found for found in store.find(names).values()}
            _, vectors = store.vectors(np.array([ids[name].vector_id for name in names]))
            wanted = {
                name: EncodedQuery(ids[name].document.text, vector, vector_id=ids[name].vector_id)
                for name, vector in zip(names, vectors, strict=True)
            }
            asked = _ask({"qdrant": data}, wanted, read_fusion(checkpoint).resolve())["qdrant"]
            stages = {name for found in asked.values() for name in found.stages}
            return {
                "documents": number,
                "storing_seconds": started[1] - started[0],
                "loading_seconds": started[2] - started[1],
                "optimising_seconds": started[3] - started[2],
                "resident_megabytes": resident_megabytes(os.getpid()),
                "stages": {
                    "all": percentiles([found.seconds for found in asked.values()]),
                    "processor": percentiles([found.processor for found in asked.values()]),
                }
                | {
                    stage: percentiles([found.stages[stage] for found in asked.values()])
                    for stage in sorted(stages)
                },
            }


def _shortened(article: EncodedDocument) -> EncodedDocument:
    assert article.blocks is not None
    offsets = article.blocks.offsets[:_BLOCKS]
    document = replace(article.document, text=article.document.text[: offsets[-1, 1]])
    blocks = BlockVectors(offsets, article.blocks.vectors[:_BLOCKS])
    return replace(article, document=document, blocks=blocks)


def scale_table(record: dict[str, Any]) -> str:
    """Return the table of a record of many documents."""
    results = record["results"]
    head = (
        f"{results['documents']:,} articles of {_BLOCKS} blocks: stored in "
        f"{results['storing_seconds']:.0f} s, loaded in {results['loading_seconds']:.0f} s, "
        f"optimised in {results['optimising_seconds']:.0f} s; "
        f"{results['resident_megabytes']:,.0f} MB resident."
    )
    rows = [[n, 1e3 * found["p50"], 1e3 * found["p95"]] for n, found in results["stages"].items()]
    return f"{head}\n\n{markdown_table(['a search by id', 'p50 ms', 'p95 ms'], rows)}"


def table(record: dict[str, Any]) -> str:
    """Return the table of a record."""
    results, core = record["results"], not record["settings"]["server"]
    rows = [
        [
            *(name, f"{found['ndcg']:.4f}"),
            *(f"{1000 * found[part]:.1f}" for part in ("p50", "p95", "processor")),
        ]
        for name, found in results["engines"].items()
    ]
    head = (
        f"{results['documents']:,} documents of {record['settings']['library']}, "
        f"{results['queries']} of them queries; "
        f"{'the core of Qdrant in the process' if core else 'a Qdrant server'}, loaded in "
        f"{results['loading_seconds']:.0f} s. The same first ten: {results['same_ten']:.4f}; the "
        f"same first: {results['same_first']:.4f}."
    )
    columns = ["engine", "nDCG@10", "p50 ms", "p95 ms", "processor, p50 ms"]
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
    engines: dict[str, DataDirectory], queries: Mapping[str, EncodedQuery], rule: LinearFusion
) -> dict[str, dict[str, Asked]]:
    """Return what each engine answers to each query; they answer in turns."""
    answers: dict[str, dict[str, Asked]] = {name: {} for name in engines}
    for name, query in queries.items():
        for engine, data in engines.items():
            started, processor = time.perf_counter(), time.process_time()
            answer = search(
                data, query, _OPTIONS, fusion=rule, calibrator=_NO_CALIBRATION, among=None
            )
            spent = time.perf_counter() - started, time.process_time() - processor
            answers[engine][name] = Asked([hit.id for hit in answer.hits], *spent, answer.seconds)
    return answers


if __name__ == "__main__":
    typer.run(main)
