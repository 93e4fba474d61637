"""The command that measures: evaluate."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from index.embed import EmbeddedCorpus, embed_corpus, read_embedded_corpus
from index.evaluate import judge, measure_index, rank_exactly
from index.qrels import read_ids, read_qrels
from service.commands.common import (
    OK,
    REFUSED,
    CheckpointOption,
    CorpusArgument,
    Loaded,
    PrecisionOption,
    ProviderOption,
    ThreadsOption,
    console,
    load,
    print_json,
)
from service.console import observing


def evaluate(
    corpus: CorpusArgument,
    qrels: Annotated[Path, typer.Argument(help="Judgements, TREC or BEIR.")],
    queries: Annotated[
        Path | None, typer.Option(help="Queries as JSON Lines; documents of the corpus else.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Only the queries of these ids, one a line.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Vectors of the corpus as `longmatch embed` wrote them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Print nDCG@10, MAP@100 and recall@10 of a checkpoint, and recall@10 of the index."""
    judgements = read_qrels(qrels)
    wanted = set(read_ids(ids)) if ids else set(judgements)
    loaded = load(checkpoint, precision, provider, threads)
    embedded = read_embedded_corpus(vectors) if vectors else _embed(corpus, loaded)
    asked = _embed(queries, loaded) if queries else embedded
    rows = [r for r, name in enumerate(asked.ids) if name in wanted and name in judgements]
    query_ids = [asked.ids[row] for row in rows]
    ranking = rank_exactly(embedded.ids, embedded.vectors, query_ids, asked.vectors[rows])
    report: dict[str, object] = {
        "queries": len(query_ids),
        "queries_missing": len(wanted & set(judgements)) - len(query_ids),
        "documents": len(embedded.ids),
        "tokens": int(embedded.tokens.sum()),
        "tokens_read": int(embedded.tokens_read.sum()),
        "checkpoint": loaded.checkpoint.name,
        "precision": loaded.encoder.precision,
        **judge(ranking, embedded.ids, judgements),
        "index_against_exact_search": asdict(measure_index(embedded.vectors, asked.vectors[rows])),
    }
    _print(report, as_json=as_json)
    raise typer.Exit(REFUSED if embedded.refused or asked.refused else OK)


def _embed(corpus: Path, loaded: Loaded) -> EmbeddedCorpus:
    with observing(console) as observer:
        return embed_corpus(corpus, loaded.tokenizer, loaded.encoder, observer)


def _print(report: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    table = Table(box=None, show_header=False)
    for name, value in report.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        table.add_row(name, ", ".join(f"{key} {_short(part)}".strip() for key, part in parts))
    Console().print(table)


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
