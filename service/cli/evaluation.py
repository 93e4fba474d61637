"""The command that measures quality: evaluate."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from encoder.checkpoint import Checkpoint
from encoder.reranker.onnx_reranker import open_reranker
from evaluation.baselines import BLOCK_BASELINES, parse_baselines
from evaluation.block_baselines import CorpusBlocks, find_blocks
from evaluation.encoded_corpus import EncodedCorpus, embed_encoded_corpus, keep_blocks
from evaluation.experiment import (
    Judgements,
    Vectors,
    baseline_systems,
    longmatch_system_names,
    longmatch_systems,
    measure_systems,
    plot_report,
    rerank_longmatch_system,
)
from evaluation.judgements import PARTS, Qrels, read_ids, read_pairs, read_qrels, read_splits
from evaluation.report import Report, choose_reference
from evaluation.systems import System
from index.embed import EmbeddedCorpus, embed_corpus, read_embedded_corpus
from index.errors import CorpusError
from index.extras import require_extra
from index.search.records import DEFAULT_MODE, Mode
from service.cli.checks import (
    OptionError,
    check_corpus,
    check_enough_to_adapt,
    check_output_folder,
    check_reranker,
    check_vectors,
    open_checkpoint,
    read_option,
    renamed,
)
from service.cli.evaluation_table import print_report
from service.cli.options import (
    INPUT_SKIPPED,
    OK,
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


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command that belong together; see `evaluate`."""

    corpus: Path
    qrels: Path | None
    queries: Path | None
    ids: Path | None
    split: Path | None
    part: str
    pairs: Path | None
    valid_pairs: Path | None
    vectors: Path | None
    mode: Mode
    adapt: bool
    rerank: int
    reranker: Path | None
    baselines: tuple[str, ...]
    blocks: Path | None
    plots: Path | None

    @property
    def files(self) -> list[Path]:
        """The corpus, then the queries if they are no documents of it."""
        return [self.corpus, self.queries] if self.queries else [self.corpus]


def evaluate(
    corpus: CorpusArgument,
    qrels: Annotated[Path | None, typer.Argument(help="Judgements, TREC or BEIR.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="Queries as JSON Lines; by default documents of the corpus."),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Only the queries with these ids, one per line.")
    ] = None,
    split: Annotated[
        Path | None, typer.Option(help="Only the queries of one part: id, tab, part.")
    ] = None,
    part: Annotated[str, typer.Option(help="With --split: train, valid or test.")] = "test",
    pairs: Annotated[
        Path | None, typer.Option(help="Labelled pairs of documents, JSON Lines.")
    ] = None,
    valid_pairs: Annotated[
        Path | None, typer.Option(help="Other labelled pairs, to choose thresholds on.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Vectors of the corpus as written by `longmatch embed`."),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="The mode to measure, with the channels it combines.")
    ] = DEFAULT_MODE,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Also measure vectors adapted to the corpus.")
    ] = False,
    rerank: Annotated[
        int, typer.Option(min=0, help="Also measure the first N results reranked; 0: none.")
    ] = 0,
    reranker: RerankerOption = None,
    baselines: Annotated[
        str,
        typer.Option(help="Also measure bm25,tfidf,lsa,mean,chunks,first512, or all of them."),
    ] = "",
    former_baselines: Annotated[str | None, renamed("--anchors", "--baselines")] = None,
    blocks: BlocksOption = None,
    reference: Annotated[
        str | None,
        typer.Option(help="The system to compare the others with; by default tfidf, if measured."),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="A folder for plots, SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Measure a checkpoint against judgements and labelled pairs, beside baselines."""
    try:
        names = parse_baselines(baselines)
    except CorpusError as error:
        raise OptionError("--baselines", error) from error
    options = _Options(
        corpus=corpus,
        qrels=qrels,
        queries=queries,
        ids=ids,
        split=split,
        part=part,
        pairs=pairs,
        valid_pairs=valid_pairs,
        vectors=vectors,
        mode=mode,
        adapt=adapt,
        rerank=rerank,
        reranker=reranker,
        baselines=names,
        blocks=blocks,
        plots=plots,
    )
    _check_combinations(options)
    _check_extras(options)
    _check_files(options)
    judgements = _read_judgements(options, reference)
    read = _read_vectors(options, open_checkpoint(checkpoint, precision, provider))
    loaded = load(checkpoint, precision, provider, threads)
    report, complete = _evaluate(options, judgements, read, loaded)
    if as_json:
        print_json(report)
    else:
        print_report(report)
    raise typer.Exit(OK if complete else INPUT_SKIPPED)


def _check_combinations(options: _Options) -> None:
    if not options.qrels and not options.pairs:
        raise OptionError("QRELS", "give judgements, or --pairs, or both")
    if options.queries and not options.qrels:
        raise OptionError("--queries", "needs judgements of them")
    if options.valid_pairs and not options.pairs:
        raise OptionError("--valid-pairs", "needs --pairs, the pairs to measure")
    if options.ids and options.split:
        raise OptionError("--ids", "cannot be combined with --split")
    if (options.ids or options.split) and not options.qrels:
        raise OptionError("--ids" if options.ids else "--split", "needs judgements")
    if options.part not in PARTS:
        raise OptionError("--part", f"{options.part!r} is none of {', '.join(PARTS)}")
    if options.rerank and not options.reranker:
        raise OptionError("--rerank", "needs --reranker, a directory or the name of one that ships")
    of_blocks = ",".join(name for name in options.baselines if name in BLOCK_BASELINES)
    if of_blocks and not options.blocks:
        raise OptionError("--baselines", f"{of_blocks} needs --blocks, a folder to keep them in")
    if of_blocks and options.queries:
        raise OptionError("--baselines", f"{of_blocks} cannot be combined with --queries")


def _check_extras(options: _Options) -> None:
    """Check that the libraries are installed which the measures, baselines and plots need."""
    require_extra("evaluate", "evaluate", "scipy")
    if options.qrels:
        require_extra("evaluate", "evaluate QRELS", "ir_measures")
    if options.pairs:
        require_extra("evaluate", "--pairs", "sklearn")
    if "bm25" in options.baselines:
        require_extra("evaluate", "--baselines bm25", "bm25s")
    for name in ("tfidf", "lsa"):
        if name in options.baselines:
            require_extra("evaluate", f"--baselines {name}", "sklearn")
    if options.plots:
        require_extra("evaluate", "--plots", "matplotlib")


def _check_files(options: _Options) -> None:
    check_corpus(options.corpus)
    if options.queries:
        check_corpus(options.queries, "--queries")
    if options.vectors:
        check_vectors(options.vectors, "--vectors")
    if options.blocks:
        check_output_folder(options.blocks, "--blocks")
    if options.plots:
        check_output_folder(options.plots, "--plots")
    if options.rerank and options.reranker:
        check_reranker(options.reranker)
    if options.adapt:
        check_enough_to_adapt(options.corpus)


def _read_judgements(options: _Options, reference: str | None) -> Judgements:
    systems = longmatch_system_names(options.mode, adapt=options.adapt)
    try:
        chosen = choose_reference([*systems, *options.baselines], reference)
    except CorpusError as error:
        raise OptionError("--reference", error) from error
    qrels = read_option("QRELS", read_qrels, options.qrels) if options.qrels else {}
    valid = options.valid_pairs
    return Judgements(
        qrels=qrels,
        query_ids=_choose_queries(options, qrels),
        pairs=read_option("--pairs", read_pairs, options.pairs) if options.pairs else [],
        valid=read_option("--valid-pairs", read_pairs, valid) if valid else [],
        reference=chosen,
    )


def _choose_queries(options: _Options, qrels: Qrels) -> Collection[str]:
    if options.split:
        parts = read_option("--split", read_splits, options.split)
        chosen = {name for name, part in parts.items() if part == options.part}
        if not chosen:
            raise OptionError("--split", f"{options.split}: no document is in {options.part!r}")
        return chosen
    if not options.ids:
        return qrels.keys()
    chosen = set(read_option("--ids", read_ids, options.ids))
    if chosen.isdisjoint(qrels):
        raise OptionError("--ids", f"{options.ids}: none of these ids has judgements")
    return chosen


def _read_vectors(options: _Options, checkpoint: Checkpoint) -> EmbeddedCorpus | None:
    """Read the vectors of the corpus, if they are given."""
    if not options.vectors:
        return None
    vectors = read_option("--vectors", read_embedded_corpus, options.vectors)
    width = vectors.vectors.shape[1]
    if options.queries and width != checkpoint.dimension:
        raise OptionError(
            "--vectors",
            f"{options.vectors}: {width} dimensions, but queries would have {checkpoint.dimension}",
        )
    return vectors


def _evaluate(
    options: _Options, judgements: Judgements, read: EmbeddedCorpus | None, loaded: Loaded
) -> tuple[Report, bool]:
    """Encode what is missing and measure every system.

    Returns:
        The report, and whether every document could be read.
    """
    encoded = _keep_blocks(options.corpus, options.blocks, loaded) if options.blocks else None
    if read is not None:
        embedded = read
    elif encoded is not None:
        embedded = embed_encoded_corpus(encoded, loaded.encoder)
    else:
        embedded = _embed(options.corpus, loaded)
    queries = _embed(options.queries, loaded) if options.queries else embedded
    vectors = Vectors(embedded, queries)
    blocks = find_blocks(encoded, embedded.ids) if encoded else None
    systems = _make_systems(options, vectors, blocks, loaded.checkpoint)
    report: Report = {
        "documents": len(embedded.ids),
        "tokens": int(embedded.tokens.sum()),
        "tokens_read": int(embedded.tokens_read.sum()),
        "checkpoint": loaded.checkpoint.name,
        "precision": loaded.encoder.precision,
    }
    report |= measure_systems(systems, vectors, judgements)
    if options.plots:
        plot_report(options.plots, report, vectors, judgements, blocks)
    return report, not (embedded.skipped or queries.skipped)


def _make_systems(
    options: _Options, vectors: Vectors, blocks: CorpusBlocks | None, checkpoint: Checkpoint
) -> list[System]:
    with show_progress(console) as progress:
        adapting = progress if options.adapt else None
        own = list(longmatch_systems(vectors, checkpoint, options.mode, options.files, adapting))
    if options.rerank and options.reranker:
        reranker = open_reranker(options.reranker)
        own.append(
            rerank_longmatch_system(own[-1], vectors, options.files, reranker, options.rerank)
        )
    return [*own, *baseline_systems(options.baselines, vectors, options.files, blocks)]


def _embed(corpus: Path, loaded: Loaded) -> EmbeddedCorpus:
    with show_progress(console) as progress:
        return embed_corpus(corpus, loaded.tokenizer, loaded.encoder, progress)


def _keep_blocks(corpus: Path, blocks: Path, loaded: Loaded) -> EncodedCorpus:
    with show_progress(console) as progress:
        return keep_blocks(corpus, blocks, loaded.encoder, progress)
