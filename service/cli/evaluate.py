"""The command that measures quality: evaluate."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from encoder.checkpoint import Checkpoint
from encoder.encoder import Encoder
from encoder.reranker.onnx_reranker import open_reranker
from evaluation import experiment
from evaluation.baselines import (
    BASELINES,
    BLOCK_BASELINES,
    BM25_SETTINGS,
    LEXICAL_BASELINES,
    parse_baselines,
)
from evaluation.encoded_corpus import EncodedCorpus, embed_encoded_corpus, keep_blocks
from evaluation.experiment import Judgements, Vectors
from evaluation.judgements import PARTS, Qrels, read_pairs, read_qrels, read_splits
from evaluation.report import Report, choose_reference
from evaluation.systems import System
from index.optional_dependencies import require_extra
from index.search.records import DEFAULT_MODE, Mode
from service.cli import checks, opening, options
from service.cli.checks import OptionError, read_option
from service.cli.opening import load
from service.cli.options import INPUT_SKIPPED, OK, console, print_json, results
from service.cli.progress import show_progress


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of the command that belong together; see the command."""

    corpus: Path
    qrels: Path | None
    queries: Path | None
    split: Path | None
    pairs: Path | None
    valid_pairs: Path | None
    mode: Mode
    rerank: int
    reranker: Path | None
    baselines: tuple[str, ...]
    blocks: Path | None

    @property
    def files(self) -> list[Path]:
        """The corpus, then the queries if they are no documents of it."""
        return [self.corpus, self.queries] if self.queries else [self.corpus]


def _check_combinations(chosen: EvaluationOptions) -> None:
    """Check that options can be combined."""
    if not chosen.qrels and not chosen.pairs:
        raise OptionError("QRELS", "give judgements, or --pairs, or both")
    if chosen.queries and not chosen.qrels:
        raise OptionError("--queries", "needs judgements of them")
    if chosen.valid_pairs and not chosen.pairs:
        raise OptionError("--valid-pairs", "needs --pairs, the pairs to measure")
    if chosen.split and not chosen.qrels:
        raise OptionError("--split", "needs judgements")
    if chosen.rerank and not chosen.reranker:
        raise OptionError("--rerank", "needs --reranker, a directory or the name of one that ships")
    of_blocks = ",".join(name for name in chosen.baselines if name in BLOCK_BASELINES)
    if of_blocks and not chosen.blocks:
        raise OptionError("--baselines", f"{of_blocks} needs --blocks, a folder to keep them in")
    if of_blocks and chosen.queries:
        raise OptionError("--baselines", f"{of_blocks} cannot be combined with --queries")


def _check_extras(chosen: EvaluationOptions) -> None:
    """Check that the libraries are installed which the measures and baselines need."""
    require_extra("evaluate", "evaluate", "scipy")
    if chosen.qrels:
        require_extra("evaluate", "evaluate QRELS", "ir_measures")
    if chosen.pairs:
        require_extra("evaluate", "--pairs", "sklearn")
    for name in LEXICAL_BASELINES:
        if name in chosen.baselines:
            package = "bm25s" if name in BM25_SETTINGS else "sklearn"
            require_extra("evaluate", f"--baselines {name}", package)


def _check_files(chosen: EvaluationOptions) -> None:
    opening.check_corpus(chosen.corpus)
    if chosen.queries:
        opening.check_corpus(chosen.queries, "--queries")
    if chosen.blocks:
        checks.output_folder(chosen.blocks, "--blocks")
    if chosen.rerank and chosen.reranker:
        checks.reranker(chosen.reranker)


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
    precision: options.PrecisionOption = None,
) -> None:
    """Measure a checkpoint against judgements and labelled pairs, beside baselines."""
    names = read_option("--baselines", parse_baselines, baselines)
    chosen = EvaluationOptions(
        corpus=corpus,
        qrels=qrels,
        queries=queries,
        split=split,
        pairs=pairs,
        valid_pairs=valid_pairs,
        mode=mode,
        rerank=rerank,
        reranker=reranker,
        baselines=names,
        blocks=blocks,
    )
    _check_combinations(chosen)
    _check_extras(chosen)
    _check_files(chosen)
    judgements = _read_judgements(chosen)
    loaded = load(encoder, precision, reading_share=reading_share)
    report, complete = _evaluate(chosen, judgements, loaded)
    if as_json:
        print_json(report)
    else:
        print_report(report)
    raise typer.Exit(OK if complete else INPUT_SKIPPED)


def _read_judgements(chosen: EvaluationOptions) -> Judgements:
    systems = experiment.OWN[chosen.mode]
    qrels = read_option("QRELS", read_qrels, chosen.qrels) if chosen.qrels else {}
    valid = chosen.valid_pairs
    return Judgements(
        qrels=qrels,
        query_ids=_choose_queries(chosen, qrels),
        pairs=read_option("--pairs", read_pairs, chosen.pairs) if chosen.pairs else [],
        valid=read_option("--valid-pairs", read_pairs, valid) if valid else [],
        reference=choose_reference([*systems, *chosen.baselines]),
    )


def _choose_queries(chosen: EvaluationOptions, qrels: Qrels) -> Collection[str]:
    if not chosen.split:
        return qrels.keys()
    parts = read_option("--split", read_splits, chosen.split)
    names = {name for name, part in parts.items() if part == PARTS[-1]}
    if not names:
        raise OptionError("--split", f"{chosen.split}: no document is in {PARTS[-1]!r}")
    return names


def _evaluate(
    chosen: EvaluationOptions, judgements: Judgements, loaded: Encoder
) -> tuple[Report, bool]:
    """Encode what is missing and measure every system.

    Returns:
        The report, and whether every document could be read.
    """
    with TemporaryDirectory() as folder:
        kept = _keep_blocks(chosen.corpus, chosen.blocks or Path(folder, "corpus"), loaded)
        embedded = embed_encoded_corpus(kept, loaded)
        queries = embedded
        if chosen.queries:
            encoded = _keep_blocks(chosen.queries, Path(folder, "queries"), loaded)
            queries = embed_encoded_corpus(encoded, loaded, embedded.space)
        vectors = Vectors(embedded, queries)
        systems = _make_systems(chosen, vectors, kept, loaded.checkpoint)
        report: Report = {
            "documents": len(embedded.ids),
            "tokens": int(embedded.tokens.sum()),
            "tokens_read": int(embedded.tokens_read.sum()),
            "checkpoint": loaded.checkpoint.name,
            "precision": loaded.precision,
        }
        report |= experiment.measure_systems(systems, vectors, judgements)
    return report, not (embedded.skipped or queries.skipped)


def _make_systems(
    chosen: EvaluationOptions,
    vectors: Vectors,
    kept: EncodedCorpus,
    checkpoint: Checkpoint,
) -> list[System]:
    own = list(experiment.longmatch_systems(vectors, checkpoint, chosen.mode, chosen.files))
    if chosen.rerank and chosen.reranker:
        reranker = open_reranker(chosen.reranker)
        own.append(
            experiment.rerank_longmatch_system(
                own[-1], vectors, chosen.files, reranker, chosen.rerank
            )
        )
    blocks = kept.select(vectors.corpus.ids)
    return [*own, *experiment.baseline_systems(chosen.baselines, vectors, chosen.files, blocks)]


def _keep_blocks(corpus: Path, blocks: Path, loaded: Encoder) -> EncodedCorpus:
    with show_progress(console) as progress:
        return keep_blocks(corpus, blocks, loaded, progress)


_TASKS = ("retrieval", "pairs")


def print_report(report: Mapping[str, Any]) -> None:
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
