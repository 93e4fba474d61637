"""The command that measures quality: evaluate."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from encoder.encoder import Encoder
from encoder.reranker.onnx_reranker import open_reranker
from evaluation import experiment
from evaluation.baselines import BASELINES, BLOCK_BASELINES, parse_baselines
from evaluation.encoded_corpus import EncodedCorpus, embed_encoded_corpus, keep_blocks
from evaluation.experiment import Judgements, Vectors
from evaluation.judgements import PARTS, read_pairs, read_qrels, read_splits
from evaluation.report import Report, choose_reference
from index.optional_dependencies import require_extra
from index.search.records import DEFAULT_MODE, Mode
from service.cli import checks, opening, options
from service.cli.checks import OptionError, read_option
from service.cli.opening import load
from service.cli.options import INPUT_SKIPPED, OK, console, print_json, results
from service.cli.progress import show_progress


def evaluate(
    corpus: options.CorpusArgument,
    qrels: Annotated[Path | None, typer.Argument(help="Judgements, TREC or BEIR.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Queries as JSON Lines; by default documents of the corpus."),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(help="Lines of id, tab, part: only the queries of the part `test`."),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Labelled pairs of documents, JSON Lines.")
    ] = None,
    valid_pairs: Annotated[
        Path | None, typer.Option(help="Other labelled pairs, to choose thresholds on.")
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="The mode to measure, with the channels it combines.")
    ] = DEFAULT_MODE,
    rerank: Annotated[
        int, typer.Option(min=0, help="Also measure the first N results reranked; 0: none.")
    ] = 0,
    reranker: options.RerankerOption = None,
    baselines: Annotated[
        str,
        typer.Option(help=f"Also measure {','.join(BASELINES)}, or all of them."),
    ] = "",
    blocks: options.BlocksOption = None,
    as_json: options.JsonOption = False,
    reading_share: options.ReadingShareOption = None,
    encoder: options.EncoderOption = None,
) -> None:
    """Measure a checkpoint against judgements and labelled pairs, beside baselines."""
    names = read_option("--baselines", parse_baselines, baselines)
    of_blocks = ",".join(name for name in names if name in BLOCK_BASELINES)
    if not qrels and not pairs:
        raise OptionError("QRELS", "give judgements, or --pairs, or both")
    for option, given, needed, reason in (
        ("--queries", queries, qrels, "needs judgements of them"),
        ("--valid-pairs", valid_pairs, pairs, "needs --pairs, the pairs to measure"),
        ("--split", split, qrels, "needs judgements"),
        ("--rerank", rerank, reranker, "needs --reranker, a directory or one that ships"),
        ("--baselines", of_blocks, blocks, f"{of_blocks} needs --blocks, a folder to keep them in"),
        ("--baselines", of_blocks, not queries, f"{of_blocks} cannot be combined with --queries"),
    ):
        if given and not needed:
            raise OptionError(option, reason)
    require_extra("evaluate", "evaluate")
    _check_files(corpus, queries, blocks, reranker if rerank else None)
    judged = read_option("QRELS", read_qrels, qrels) if qrels else {}
    judgements = Judgements(
        qrels=judged,
        query_ids=_ids_of_test(split) if split else judged.keys(),
        pairs=read_option("--pairs", read_pairs, pairs) if pairs else [],
        valid=read_option("--valid-pairs", read_pairs, valid_pairs) if valid_pairs else [],
        reference=choose_reference([experiment.VECTOR, *names]),
    )
    loaded = load(encoder, reading_share=reading_share)
    with TemporaryDirectory() as folder:
        kept = _keep_blocks(corpus, blocks or Path(folder, "corpus"), loaded)
        vectors = _embed(kept, queries, Path(folder, "queries"), loaded)
        files = [corpus, queries] if queries else [corpus]
        systems = [*experiment.longmatch_systems(vectors, loaded.checkpoint, mode, files)]
        if rerank and reranker:
            opened = open_reranker(reranker)
            systems.append(
                experiment.rerank_longmatch_system(systems[-1], vectors, files, opened, rerank)
            )
        selected = kept.select(vectors.corpus.ids)
        systems += experiment.baseline_systems(names, vectors, files, selected)
        report: Report = {
            "documents": len(vectors.corpus.ids),
            "tokens": int(vectors.corpus.tokens.sum()),
            "tokens_read": int(vectors.corpus.tokens_read.sum()),
            "checkpoint": loaded.checkpoint.name,
            "precision": loaded.precision,
            **experiment.measure_systems(systems, vectors, judgements),
        }
    (print_json if as_json else _print)(report)
    raise typer.Exit(INPUT_SKIPPED if vectors.corpus.skipped or vectors.queries.skipped else OK)


def _check_files(
    corpus: Path, queries: Path | None, blocks: Path | None, reranker: Path | None
) -> None:
    opening.check_corpus(corpus)
    if queries:
        opening.check_corpus(queries, "--queries")
    if blocks:
        checks.output_folder(blocks, "--blocks")
    if reranker:
        checks.reranker(reranker)


def _ids_of_test(split: Path) -> set[str]:
    parts = read_option("--split", read_splits, split)
    names = {name for name, part in parts.items() if part == PARTS[-1]}
    if not names:
        raise OptionError("--split", f"{split}: no document is in {PARTS[-1]!r}")
    return names


def _embed(kept: EncodedCorpus, queries: Path | None, folder: Path, loaded: Encoder) -> Vectors:
    """Return the vectors of a corpus, and of queries that are no documents of it, if there are."""
    corpus = embed_encoded_corpus(kept, loaded)
    if queries is None:
        return Vectors(corpus, corpus)
    encoded = _keep_blocks(queries, folder, loaded)
    return Vectors(corpus, embed_encoded_corpus(encoded, loaded, corpus.space))


def _keep_blocks(corpus: Path, blocks: Path, loaded: Encoder) -> EncodedCorpus:
    with show_progress(console) as progress:
        return keep_blocks(corpus, blocks, loaded, progress)


_TASKS = ("retrieval", "pairs")


def _print(report: Mapping[str, Any]) -> None:
    """Print a report to standard output, without the figures by length, which only JSON has."""
    facts = Table(box=None, show_header=False)
    for name, value in report.items():
        if name not in _TASKS:
            parts = value.items() if isinstance(value, dict) else [("", value)]
            facts.add_row(name, ", ".join(f"{key} {_short(part)}".strip() for key, part in parts))
    results.print(facts, soft_wrap=True)
    for task in _TASKS:
        if task in report:
            results.print(f"\n{_heading(task, report[task])}", soft_wrap=True)
            results.print(_systems(report[task]), soft_wrap=True)


def _heading(task: str, report: Mapping[str, Any]) -> str:
    if task == "pairs":
        what = f"{report['pairs']} pairs, thresholds chosen on {report['threshold_chosen_on']}"
    else:
        what = f"Retrieval, {report['queries']} queries, {report['judgements']} judgements"
    return f"{what}; 95 % intervals in brackets, p against {report['reference']}"


def _systems(report: Mapping[str, Any]) -> Table:
    systems: Mapping[str, Mapping[str, Any]] = report["systems"]
    measures = dict.fromkeys(
        name
        for figures in systems.values()
        for name, figure in figures.items()
        if isinstance(figure, dict) and "value" in figure
    )
    columns = (Column(measure, justify="right") for measure in measures)
    table = Table("system", *columns, box=None)
    for system, figures in systems.items():
        against = figures.get("against", {})
        table.add_row(system, *(_cell(figures.get(name), against.get(name)) for name in measures))
    return table


def _cell(estimate: Mapping[str, float] | None, against: Mapping[str, float] | None) -> str:
    if estimate is None:
        return ""
    cell = f"{estimate['value']:.4f} ({estimate['low']:.3f}-{estimate['high']:.3f})"
    return f"{cell} p {against['p']:.4f}" if against else cell


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
