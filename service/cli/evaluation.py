"""The command that measures: evaluate."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from encoder.reranker.onnx_reranker import open_reranker
from evaluation.baselines import BLOCK_BASELINES, parse_baselines
from evaluation.block_baselines import CorpusBlocks, find_blocks
from evaluation.encoded_corpus import EncodedCorpus, embed_encoded_corpus, keep_blocks
from evaluation.experiment import (
    SEMANTIC,
    Vectors,
    baseline_systems,
    longmatch_system_names,
    longmatch_systems,
    pair_task,
    rerank_longmatch_system,
    retrieval_task,
)
from evaluation.judgements import Pair, Qrels, read_ids, read_pairs, read_qrels, read_splits
from evaluation.metrics import MEASURES, measure_index
from evaluation.plots import plot_by_length, plot_by_tokens_read
from evaluation.report import (
    Report,
    choose_reference,
    curve_by_tokens,
    report_pairs,
    report_retrieval,
)
from evaluation.significance import Estimate
from evaluation.systems import System
from index.embed import EmbeddedCorpus, embed_corpus, read_embedded_corpus
from index.errors import CorpusError
from index.search.records import DEFAULT_MODE, Mode
from service.cli.options import (
    OK,
    REFUSED,
    BlocksOption,
    CheckpointOption,
    CorpusArgument,
    Loaded,
    PrecisionOption,
    ProviderOption,
    RerankerOption,
    ThreadsOption,
    console,
    load,
    print_json,
)
from service.cli.progress import show_progress

_QUESTIONS = ("retrieval", "pairs")


def print_report(report: Mapping[str, Any]) -> None:
    """Print a report to standard output; figures by length are in the JSON only."""
    out = Console(soft_wrap=True)
    facts = Table(box=None, show_header=False)
    for name, value in report.items():
        if name not in _QUESTIONS:
            parts = value.items() if isinstance(value, dict) else [("", value)]
            facts.add_row(name, ", ".join(f"{key} {_short(part)}".strip() for key, part in parts))
    out.print(facts)
    for question in _QUESTIONS:
        if question in report:
            out.print(f"\n{_heading(question, report[question])}")
            out.print(_systems(report[question]))


def _heading(question: str, report: Mapping[str, Any]) -> str:
    if question == "retrieval":
        what = f"Retrieval, {report['queries']} queries"
    else:
        what = f"{report['pairs']} pairs, thresholds chosen on {report['threshold_chosen_on']}"
    return f"{what}; in brackets 95 % intervals, p against {report['reference']}"


def _systems(report: Mapping[str, Any]) -> Table:
    table = Table(box=None)
    table.add_column("system")
    systems: Mapping[str, Mapping[str, Any]] = report["systems"]
    measures = list(
        dict.fromkeys(name for one in systems.values() for name in one if _is_estimate(one[name]))
    )
    for measure in measures:
        table.add_column(measure, justify="right")
    for system, one in systems.items():
        against = one.get("against", {})
        table.add_row(system, *(_cell(one.get(name), against.get(name)) for name in measures))
    return table


def _is_estimate(value: object) -> bool:
    return isinstance(value, dict) and "value" in value


def _cell(estimate: Mapping[str, float] | None, against: Mapping[str, float] | None) -> str:
    if estimate is None:
        return ""
    cell = f"{estimate['value']:.4f} ({estimate['low']:.3f}-{estimate['high']:.3f})"
    return f"{cell} p {against['p']:.4f}" if against else cell


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked, read before anything is encoded.

    Attributes:
        qrels: judgements; empty where retrieval is not asked.
        wanted: ids of the queries.
        pairs: empty where pairs are not asked.
        valid: pairs on which thresholds are chosen; empty where there are no others.
        reference: name of the system that the others are compared with.
    """

    qrels: Qrels
    wanted: set[str]
    pairs: list[Pair]
    valid: list[Pair]
    reference: str


def evaluate(
    corpus: CorpusArgument,
    qrels: Annotated[Path | None, typer.Argument(help="Judgements, TREC or BEIR.")] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Queries as JSON Lines; documents of the corpus else.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Only the queries of these ids, one a line.")
    ] = None,
    split: Annotated[
        Path | None, typer.Option(help="Only the queries of one part: id, tab, part.")
    ] = None,
    part: Annotated[str, typer.Option(help="With --split: train, valid or test.")] = "test",
    pairs: Annotated[
        Path | None, typer.Option(help="Labelled pairs of documents, JSON Lines.")
    ] = None,
    valid_pairs: Annotated[
        Path | None, typer.Option(help="Other pairs, on which thresholds are chosen.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Vectors of the corpus as `longmatch embed` wrote them."),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="What is measured, with all that it is made of.")
    ] = DEFAULT_MODE,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Measure vectors adapted to the corpus beside.")
    ] = False,
    rerank: Annotated[
        int, typer.Option(min=0, help="Measure the first so many reranked beside; 0 reranks none.")
    ] = 0,
    reranker: RerankerOption = None,
    baselines: Annotated[
        str, typer.Option(help="bm25,tfidf,lsa,mean,chunks,first512, or all: measured beside.")
    ] = "",
    blocks: BlocksOption = None,
    reference: Annotated[
        str | None,
        typer.Option(help="The system to compare the others with; tfidf where it is there."),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="A folder for pictures, SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Print how good a checkpoint is against judgements and labelled pairs, beside baselines."""
    names = parse_baselines(baselines)
    _check(qrels, queries, pairs, valid_pairs)
    if rerank and not reranker:
        raise CorpusError("--rerank: needs --reranker, a directory or the name of one that ships")
    _check_blocks(names, blocks, queries)
    judgements = read_qrels(qrels) if qrels else {}
    asked = _Asked(
        qrels=judgements,
        wanted=_wanted(ids, split, part, judgements),
        pairs=read_pairs(pairs) if pairs else [],
        valid=read_pairs(valid_pairs) if valid_pairs else [],
        reference=choose_reference([*longmatch_system_names(mode, adapt=adapt), *names], reference),
    )
    loaded = load(checkpoint, precision, provider, threads)
    encoded = _keep_blocks(corpus, blocks, loaded) if blocks else None
    embedded = _embed_or_read(corpus, vectors, encoded, loaded)
    known = Vectors(embedded, _embed(queries, loaded) if queries else embedded)
    kept = find_blocks(encoded, embedded.ids) if encoded else None
    files = [corpus, queries] if queries else [corpus]
    with show_progress(console) as progress:
        adapting = progress if adapt else None
        own = list(longmatch_systems(known, loaded.checkpoint, mode, files, adapting))
    if rerank and reranker:
        own.append(rerank_longmatch_system(own[-1], known, files, open_reranker(reranker), rerank))
    systems = [*own, *baseline_systems(names, known, files, kept)]
    report = _facts(known, loaded) | _measure(systems, known, asked)
    if plots:
        _draw(plots, report, known, asked, kept)
    if as_json:
        print_json(report)
    else:
        print_report(report)
    raise typer.Exit(REFUSED if known.corpus.refused or known.queries.refused else OK)


def _check(
    qrels: Path | None, queries: Path | None, pairs: Path | None, valid_pairs: Path | None
) -> None:
    if not qrels and not pairs:
        raise CorpusError("evaluate: give judgements, or --pairs, or both")
    if queries and not qrels:
        raise CorpusError("--queries: needs judgements of them")
    if valid_pairs and not pairs:
        raise CorpusError("--valid-pairs: needs --pairs, the ones that are measured")


def _check_blocks(baselines: Sequence[str], blocks: Path | None, queries: Path | None) -> None:
    of_blocks = ",".join(name for name in baselines if name in BLOCK_BASELINES)
    if of_blocks and not blocks:
        raise CorpusError(f"--baselines {of_blocks}: needs --blocks, a folder to keep them in")
    if of_blocks and queries:
        raise CorpusError(f"--baselines {of_blocks}: queries must be documents of the corpus")


def _wanted(ids: Path | None, split: Path | None, part: str, qrels: Qrels) -> set[str]:
    if ids and split:
        raise CorpusError("--ids and --split: give one of them")
    if split:
        wanted = {name for name, of in read_splits(split).items() if of == part}
        if not wanted:
            raise CorpusError(f"{split}: no document is in the part {part!r}")
        return wanted
    return set(read_ids(ids)) if ids else set(qrels)


def _embed(corpus: Path, loaded: Loaded) -> EmbeddedCorpus:
    with show_progress(console) as progress:
        return embed_corpus(corpus, loaded.tokenizer, loaded.encoder, progress)


def _keep_blocks(corpus: Path, blocks: Path, loaded: Loaded) -> EncodedCorpus:
    with show_progress(console) as progress:
        return keep_blocks(corpus, blocks, loaded.encoder, progress)


def _embed_or_read(
    corpus: Path, vectors: Path | None, encoded: EncodedCorpus | None, loaded: Loaded
) -> EmbeddedCorpus:
    if vectors:
        return read_embedded_corpus(vectors)
    if encoded:
        return embed_encoded_corpus(encoded, loaded.encoder)
    return _embed(corpus, loaded)


def _facts(known: Vectors, loaded: Loaded) -> Report:
    return {
        "documents": len(known.corpus.ids),
        "tokens": int(known.corpus.tokens.sum()),
        "tokens_read": int(known.corpus.tokens_read.sum()),
        "checkpoint": loaded.checkpoint.name,
        "precision": loaded.encoder.precision,
    }


def _measure(systems: Sequence[System], known: Vectors, asked: _Asked) -> Report:
    report: Report = {}
    if asked.qrels:
        question = retrieval_task(known, asked.qrels, asked.wanted)
        vectors = known.all_vectors[question.rows]
        found = report_retrieval(systems, question, asked.reference)
        of_semantic = found["systems"][SEMANTIC]
        report |= {
            "queries": len(question.query_ids),
            "queries_missing": len(asked.wanted & set(asked.qrels)) - len(question.query_ids),
            **{measure: of_semantic[measure]["value"] for measure in MEASURES},
            "index_against_exact_search": asdict(measure_index(known.corpus.vectors, vectors)),
            "retrieval": found,
        }
    if asked.pairs:
        pairs = pair_task(known.corpus, asked.pairs, asked.valid)
        report["pairs"] = report_pairs(systems, pairs, asked.reference)
    return report


def _draw(
    folder: Path, report: Report, known: Vectors, asked: _Asked, blocks: CorpusBlocks | None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for question, measure in (("retrieval", "nDCG@10"), ("pairs", "AUC")):
        if question in report:
            lengths = {
                name: {
                    bucket: Estimate(**figures[measure])
                    for bucket, figures in one["by_length"].items()
                    if measure in figures
                }
                for name, one in report[question]["systems"].items()
            }
            plot_by_length(folder / f"{question}-by-length.svg", lengths, measure)
    if blocks is not None and asked.qrels and known.queries is known.corpus:
        asking = retrieval_task(known, asked.qrels, asked.wanted)
        curves = {"mean of block vectors": curve_by_tokens(blocks, asking)}
        plot_by_tokens_read(folder / "retrieval-by-tokens-read.svg", curves, "nDCG@10")
