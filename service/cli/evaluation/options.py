"""The options of `evaluate`, and what is checked of them before any work."""

from dataclasses import dataclass
from pathlib import Path

from evaluation.baselines import BLOCK_BASELINES
from evaluation.judgements import PARTS
from index.optional_dependencies import require_extra
from index.search.records import Mode
from service.cli.checks import OptionError, check_output_folder, check_reranker, check_vectors
from service.cli.indexing.checks import check_corpus, check_enough_to_adapt


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of the command that belong together; see the command."""

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
    without_mentions: bool
    mask_mentions: bool
    plots: Path | None

    @property
    def files(self) -> list[Path]:
        """The corpus, then the queries if they are no documents of it."""
        return [self.corpus, self.queries] if self.queries else [self.corpus]


def check_options(options: EvaluationOptions) -> None:
    """Check that options can be combined, and that libraries and files are there.

    Raises:
        OptionError: they cannot be used; names the option.
        MissingExtraError: a library is not installed that a measure, baseline or plot needs.
    """
    _check_combinations(options)
    _check_mentions(options)
    _check_extras(options)
    _check_files(options)


def _check_combinations(options: EvaluationOptions) -> None:
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
        raise OptionError("--rerank", "needs --reranker, the directory of a reranker")
    of_blocks = ",".join(name for name in options.baselines if name in BLOCK_BASELINES)
    if of_blocks and not options.blocks:
        raise OptionError("--baselines", f"{of_blocks} needs --blocks, a folder to keep them in")
    if of_blocks and options.queries:
        raise OptionError("--baselines", f"{of_blocks} cannot be combined with --queries")


def _check_mentions(options: EvaluationOptions) -> None:
    if options.without_mentions and not options.qrels:
        raise OptionError("--without-mentions", "needs judgements; labelled pairs stay as they are")
    if options.mask_mentions and options.vectors:
        raise OptionError("--mask-mentions", "cannot be combined with --vectors, of other texts")


def _check_extras(options: EvaluationOptions) -> None:
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


def _check_files(options: EvaluationOptions) -> None:
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
