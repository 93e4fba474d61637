"""The command that measures quality: evaluate."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from encoder.checkpoint import Checkpoint
from encoder.reranker.onnx_reranker import open_reranker
from evaluation.baselines import CorpusBlocks, find_blocks, parse_baselines
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
from evaluation.judgements import Qrels, read_ids, read_pairs, read_qrels, read_splits
from evaluation.mentions import MaskedFiles, leave_out_mentions, read_title_mask, write_masked_files
from evaluation.report import Report, choose_reference
from evaluation.systems import System
from index.embed import EmbeddedCorpus, read_aligned_corpus, read_embedded_corpus
from index.errors import CorpusError
from index.search.fusion import read_fusion
from index.search.records import DEFAULT_MODE, Mode
from service.cli.checks import OptionError, open_checkpoint, read_option, renamed
from service.cli.evaluation.options import EvaluationOptions, check_options
from service.cli.evaluation.table import print_report
from service.cli.opening import Loaded, load
from service.cli.options import (
    INPUT_SKIPPED,
    OK,
    BlocksOption,
    CheckpointOption,
    CorpusArgument,
    PrecisionOption,
    ProviderOption,
    ReadingShareOption,
    RerankerOption,
    ThreadsOption,
    console,
    print_json,
)
from service.cli.progress import show_progress


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
    without_mentions: Annotated[
        bool,
        typer.Option(
            "--without-mentions",
            help="Also measure without judged pairs of which one text names the other's title.",
        ),
    ] = False,
    mask_mentions: Annotated[
        bool,
        typer.Option(
            "--mask-mentions",
            help="Mask the titles of other documents in all texts; encodes the corpus again.",
        ),
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(help="The system to compare the others with; by default tfidf, if measured."),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="A folder for plots, SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    reading_share: ReadingShareOption = None,
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
    options = EvaluationOptions(
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
        without_mentions=without_mentions,
        mask_mentions=mask_mentions,
        plots=plots,
    )
    check_options(options)
    judgements = _read_judgements(options, reference)
    read = _read_vectors(options, open_checkpoint(checkpoint, precision, provider))
    judgements = _leave_out_mentions(options, judgements)
    with _masked(options) as (readable, masked):
        loaded = load(checkpoint, precision, provider, threads, None, reading_share)
        report, complete = _evaluate(readable, judgements, read, loaded)
    if masked:
        report["mentions_masked"] = {"mentions": masked.mentions, "documents": masked.documents}
        complete = complete and not masked.skipped
    if as_json:
        print_json(report)
    else:
        print_report(report)
    raise typer.Exit(OK if complete else INPUT_SKIPPED)


def _read_judgements(options: EvaluationOptions, reference: str | None) -> Judgements:
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


def _choose_queries(options: EvaluationOptions, qrels: Qrels) -> Collection[str]:
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


def _leave_out_mentions(options: EvaluationOptions, judgements: Judgements) -> Judgements:
    """Read the texts of the judged pairs, if --without-mentions is given."""
    if not options.without_mentions:
        return judgements
    chosen = {name: some for name, some in judgements.qrels.items() if name in judgements.query_ids}
    found = leave_out_mentions(chosen, options.corpus, options.queries)
    if not found.titles:
        raise OptionError("--without-mentions", f"{options.corpus}: no judged document has a title")
    if not found.qrels:
        raise OptionError(
            "--without-mentions",
            f"{options.qrels}: leaves no query a relevant document: all are mentions",
        )
    return replace(judgements, without_mentions=found)


@contextmanager
def _masked(options: EvaluationOptions) -> Iterator[tuple[EvaluationOptions, MaskedFiles | None]]:
    """Give options that name masked texts, until the end of a block, if --mask-mentions is given.

    Block vectors of masked texts are kept in a folder of their own.
    """
    if not options.mask_mentions:
        yield options, None
        return
    mask = read_option("--mask-mentions", read_title_mask, options.corpus)
    with TemporaryDirectory() as folder:
        with show_progress(console) as progress:
            masked = write_masked_files(options.files, mask, Path(folder), progress)
        corpus, *queries = masked.files
        blocks = options.blocks / "masked" if options.blocks else None
        yield (
            replace(options, corpus=corpus, queries=next(iter(queries), None), blocks=blocks),
            masked,
        )


def _read_vectors(options: EvaluationOptions, checkpoint: Checkpoint) -> EmbeddedCorpus | None:
    """Read the vectors of the corpus, if they are given."""
    if not options.vectors:
        return None
    aligning = options.mode != "lexical" and read_fusion(checkpoint).aligns
    read = read_aligned_corpus if aligning else read_embedded_corpus
    vectors = read_option("--vectors", read, options.vectors)
    width = vectors.vectors.shape[1]
    if options.queries and width != checkpoint.dimension:
        raise OptionError(
            "--vectors",
            f"{options.vectors}: {width} dimensions, but queries would have {checkpoint.dimension}",
        )
    return vectors


def _evaluate(
    options: EvaluationOptions, judgements: Judgements, read: EmbeddedCorpus | None, loaded: Loaded
) -> tuple[Report, bool]:
    """Encode what is missing and measure every system.

    Returns:
        The report, and whether every document could be read.
    """
    with TemporaryDirectory() as folder:
        embedded, blocks = _read_corpus(options, read, loaded, Path(folder, "corpus"))
        queries = embedded
        if options.queries:
            encoded = _keep_blocks(options.queries, Path(folder, "queries"), loaded)
            space = None if embedded.aligned is None else embedded.aligned.space
            queries = embed_encoded_corpus(encoded, loaded.encoder, space)
        vectors = Vectors(embedded, queries)
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


def _read_corpus(
    options: EvaluationOptions, read: EmbeddedCorpus | None, loaded: Loaded, folder: Path
) -> tuple[EmbeddedCorpus, CorpusBlocks | None]:
    """Return vectors and block vectors, encoded into --blocks or `folder` if they are not given."""
    if read is not None and not options.blocks:
        return read, None
    encoded = _keep_blocks(options.corpus, options.blocks or folder, loaded)
    embedded = read or embed_encoded_corpus(encoded, loaded.encoder)
    return embedded, find_blocks(encoded, embedded.ids)


def _make_systems(
    options: EvaluationOptions,
    vectors: Vectors,
    blocks: CorpusBlocks | None,
    checkpoint: Checkpoint,
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


def _keep_blocks(corpus: Path, blocks: Path, loaded: Loaded) -> EncodedCorpus:
    with show_progress(console) as progress:
        return keep_blocks(corpus, blocks, loaded.encoder, progress)
