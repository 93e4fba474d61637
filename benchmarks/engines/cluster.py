"""Does a cluster answer as one machine does, and how fast?

The same documents are indexed twice: by one process into a data directory, and by two actors on Ray
into a PostgreSQL. One server serves the first; two servers serve the second, each with a Milvus
Lite for its vectors. Each document is then a query by id in every mode, with a filter and with
families collapsed, asked of the one server and, in turns, of the two; the answers are compared.
"""

import json
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.common import (
    commit,
    corpus_name,
    make_record,
    markdown_table,
    percentiles,
    read_documents,
    write_record,
)
from benchmarks.server.server import Server, index_corpus, started
from encoder.checkpoint import DEFAULT_CHECKPOINT
from index.document import Document
from tests.tools.postgresql import serve_postgresql

BENCHMARK = "cluster"
K = 10
FIRST_HALF = {"field": "/half", "in": [0]}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "hybrid": {"mode": "hybrid"},
    "semantic": {"mode": "semantic"},
    "lexical": {"mode": "lexical"},
    "hybrid, filter": {"mode": "hybrid", "filter": FIRST_HALF},
    "hybrid, collapsed": {"mode": "hybrid", "collapse": True},
}


def main(
    store: Annotated[
        str | None,
        typer.Argument(help="A PostgreSQL, as postgresql://…; else one is started for this run."),
    ] = None,
    schema: Annotated[
        str, typer.Option(help="A schema that it does not have; it is made, and left there.")
    ] = BENCHMARK,
    corpus: Annotated[Path | None, typer.Option(help="By default Python's documentation.")] = None,
    documents: Annotated[int, typer.Option(min=20, help="Documents, each of them a query.")] = 500,
    reading_share: Annotated[float, typer.Option(help="Of each document that is encoded.")] = 1.0,
    words: Annotated[str, typer.Option(help="LONGMATCH_WORDS of the cluster.")] = "local",
) -> None:
    """Index on one machine and on the cluster, ask both, and compare."""
    source = commit()
    chosen = [
        replace(one, metadata={"half": number % 2})
        for number, one in enumerate(read_documents(corpus, documents))
    ]
    settings = {
        "corpus": corpus_name(corpus),
        "documents": len(chosen),
        "reading_share": reading_share,
        "words": words,
        "k": K,
    }
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        database = store or opened.enter_context(serve_postgresql())
        results = measure(
            chosen, database, Path(folder), schema=schema, share=reading_share, words=words
        )
    record = make_record(BENCHMARK, source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(
    documents: Sequence[Document],
    store: str,
    folder: Path,
    *,
    schema: str,
    share: float,
    words: str,
) -> dict[str, Any]:
    """Index twice, serve both, and ask every query of both."""
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(asdict(one)) + "\n" for one in documents))
    options = ["--reading-share", share] if share < 1 else []
    with ExitStack() as opened:
        shared = {"LONGMATCH_STORE": store, "LONGMATCH_STORE_SCHEMA": schema}
        nodes = [
            shared
            | {"LONGMATCH_VECTORS": f"milvus://{folder}/vectors-{n}.db", "LONGMATCH_WORDS": words}
            for n in range(2)
        ]
        seconds = {}
        seconds["one machine"] = timed(corpus, folder / "one", *options)
        on_ray = ["--on", "ray", "--actors", 2, "--threads", 1]
        seconds["cluster"] = timed(corpus, folder / "node-0", *options, *on_ray, more=nodes[0])
        one = opened.enter_context(started(folder / "one", DEFAULT_CHECKPOINT))
        two = [
            opened.enter_context(started(folder / f"node-{n}", DEFAULT_CHECKPOINT, nodes[n]))
            for n in range(2)
        ]
        ids = [document.id for document in documents]
        asked = {kind: compare(ids, body, one, two) for kind, body in KINDS.items()}
    return {"indexing_seconds": seconds, "kinds": asked}


def timed(
    corpus: Path, data: Path, *options: object, more: Mapping[str, str] | None = None
) -> float:
    """Return the seconds that indexing took, with the start of the process."""
    began = time.perf_counter()
    index_corpus(corpus, data, *options, checkpoint=DEFAULT_CHECKPOINT, more=more)
    return round(time.perf_counter() - began, 1)


def compare(
    ids: Sequence[str], body: Mapping[str, Any], one: Server, two: Sequence[Server]
) -> dict[str, Any]:
    """Ask each query of the one server and of one of the two; count equal answers."""
    same_order = same_set = 0
    times: dict[str, list[float]] = {"one machine": [], "cluster": []}
    score_differences: list[float] = [0.0]
    for number, document_id in enumerate(ids):
        answers = []
        for name, server in (("one machine", one), ("cluster", two[number % len(two)])):
            began = time.perf_counter()
            answer = match(server, {"id": document_id, "top_k": K, **body})
            times[name].append(1000 * (time.perf_counter() - began))
            answers.append({found["id"]: found["score"] for found in answer["matches"]})
        here, there = answers
        same_order += list(here) == list(there)
        same_set += set(here) == set(there)
        both = here.keys() & there.keys()
        score_differences += [abs(here[name] - there[name]) for name in both]
    return {
        "queries": len(ids),
        "same_order": same_order / len(ids),
        "same_set": same_set / len(ids),
        "largest_score_difference": max(score_differences),
        "milliseconds": {name: percentiles(values) for name, values in times.items()},
        "ratio": median(b / a for a, b in zip(*times.values(), strict=True)),
    }


def match(server: Server, body: Mapping[str, Any]) -> Any:
    """Return the answer of `POST /match`."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/match",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def table(record: Mapping[str, Any]) -> str:
    """Format a record: a row for each kind of query."""
    rows = [
        [
            kind,
            result["queries"],
            f"{100 * result['same_order']:.1f} %",
            f"{100 * result['same_set']:.1f} %",
            f"{result['largest_score_difference']:.0e}",
            *(
                "{p50:.1f} / {p99:.1f}".format(**result["milliseconds"][name])
                for name in ("one machine", "cluster")
            ),
            f"{result['ratio']:.2f}",
        ]
        for kind, result in record["results"]["kinds"].items()
    ]
    head = ["query by id", "queries", "same ten in order", "same ten", "scores differ by"]
    head += ["one machine, p50 / p99 ms", "cluster", "ratio"]
    return markdown_table(head, rows)


if __name__ == "__main__":
    typer.run(main)
