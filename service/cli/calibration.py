"""Commands that calibrate scores: lab fit-calibration (a checkpoint), calibrate (documents)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from encoder.adapter import vector_space
from encoder.calibration import (
    SEMANTIC,
    Calibration,
    KindCalibration,
    read_calibration,
    write_calibration,
)
from encoder.checkpoint import Checkpoint
from encoder.errors import CheckpointError
from evaluation.encoded_corpus import embed_with_blocks
from evaluation.fitting.calibration import (
    MIN_OF_A_CLASS,
    ScoredPairs,
    fit_kind,
    score_labelled_pairs,
)
from evaluation.judgements import read_pairs
from index.adapt import read_corpus_adapter
from index.corpus.reader import read_documents
from index.directory.data_directory import CALIBRATION_FILE
from index.embed import EmbeddedCorpus, read_aligned_corpus, read_embedded_corpus
from index.errors import CorpusError
from index.lexical.scoring import TermRows, rows_of_texts
from index.optional_dependencies import require_extra
from index.search.calibrator import measure_scoring, score_kind
from index.search.corpus_calibration import (
    Channels,
    NullDistribution,
    check_rate,
    threshold_for,
    write_corpus_calibration,
)
from index.search.fusion import read_corpus_fusion, read_fusion
from index.search.records import DEFAULT_MODE, Mode
from service.cli.checks import (
    OptionError,
    check_output_folder,
    check_vectors,
    open_checkpoint,
    read_option,
)
from service.cli.corpus_checks import check_corpus, check_data_directory
from service.cli.opening import load, opened, with_reading
from service.cli.options import (
    DEFAULT_DATA,
    CheckpointOption,
    DataOption,
    console,
    print_json,
)
from service.cli.progress import show_progress

_MODES: tuple[Mode, ...] = ("semantic", "lexical", "hybrid")
_OF_PLAIN = {score_kind(mode, adapted=False): mode for mode in _MODES}
_OF_ADAPTED = {score_kind(mode, adapted=True): mode for mode in _MODES}


def fit_calibration(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint directory to write into.")],
    pairs: Annotated[
        list[Path],
        typer.Option(help="Labelled pairs, JSON Lines; may be repeated, each with its --corpus."),
    ],
    corpus: Annotated[
        list[Path],
        typer.Option(
            help="The corpus of these pairs, or its vectors (.npz) of `longmatch embed --blocks`."
        ),
    ],
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            help="The corpus itself, if --corpus is a file of vectors and the kind needs words."
        ),
    ] = None,
    kind: Annotated[
        list[str],
        typer.Option(
            help="semantic, lexical, hybrid, adapted or 'adapted hybrid'; may be repeated. The "
            "adapted kinds need vectors of `embed --adapt`."
        ),
    ] = [SEMANTIC],  # noqa: B006 (Typer copies it)
) -> None:
    """Fit match probabilities on labelled pairs and write them into a checkpoint.

    The first --pairs belongs to the first --corpus, and so on; each corpus counts the same. Use
    pairs that the checkpoint was not trained on.
    """
    require_extra("evaluate", "lab fit-calibration", "sklearn")
    modes = _modes_of(kind, corpus)
    needs_words = set(modes.values()) != {"semantic"}
    places = _check_places(pairs, corpus, texts, needs_words=needs_words)
    for path in pairs:
        _check_pairs(path)
    for path in corpus:
        if _holds_vectors(path):
            check_vectors(path, "--corpus")
        else:
            check_corpus(path, "--corpus")
    for path in texts or ():
        check_corpus(path, "--texts")
    opened = open_checkpoint(checkpoint, option="CHECKPOINT")
    check_output_folder(checkpoint, "CHECKPOINT")
    rule = read_fusion(opened)
    scored: list[dict[Mode, ScoredPairs]] = []
    if set(modes.values()) != {"lexical"}:
        for path in filter(_holds_vectors, corpus):
            read_option("--corpus", read_aligned_corpus, path)
    for pairs_file, corpus_path, texts_path in zip(pairs, corpus, places, strict=True):
        embedded = _vectors(corpus_path, opened)
        words = _words(texts_path, embedded.ids) if needs_words else None
        channels = Channels(embedded.vectors, words, embedded.aligned)
        with show_progress(console) as progress:
            scored.append(
                score_labelled_pairs(pairs_file, embedded.ids, channels, rule, progress, 0)
            )
    fitted = {name: fit_kind([pairs[mode] for pairs in scored]) for name, mode in modes.items()}
    calibration = Calibration(opened.fingerprint, {**_other_kinds(opened), **fitted})
    write_calibration(opened, calibration)
    _print_maps(fitted)
    console.print(f"{checkpoint}: calibration {calibration.version}")


def _words(corpus: Path, ids: Sequence[str]) -> TermRows:
    documents = read_documents(corpus, ids)
    return rows_of_texts(
        [document.text for document in documents], [document.title for document in documents]
    )


def _modes_of(kinds: Sequence[str], corpora: Sequence[Path]) -> dict[str, Mode]:
    """Return the mode of each kind of score."""
    every = {**_OF_PLAIN, **_OF_ADAPTED}
    for kind in kinds:
        if kind not in every:
            raise OptionError("--kind", f"{kind!r} is none of {', '.join(every)}")
    groups = (_OF_PLAIN, _OF_ADAPTED)
    known = next((group for group in groups if group.keys() >= set(kinds)), None)
    if known is None:
        raise OptionError(
            "--kind",
            f"{', '.join(kinds)}: vectors are either adapted or not: fit these kinds separately",
        )
    adapted = known is _OF_ADAPTED
    if adapted and not all(_holds_vectors(path) for path in corpora):
        raise OptionError("--kind", f"{kinds[0]} takes vectors of `embed --adapt` as --corpus")
    return {kind: known[kind] for kind in kinds}


def _check_places(
    pairs: Sequence[Path],
    corpora: Sequence[Path],
    texts: Sequence[Path] | None,
    *,
    needs_words: bool,
) -> Sequence[Path]:
    """Return the paths of the texts of each corpus."""
    if len(pairs) != len(corpora):
        raise OptionError(
            "--pairs",
            f"{len(pairs)} --pairs for {len(corpora)} --corpus: each needs the other",
        )
    if texts and len(texts) != len(corpora):
        raise OptionError("--texts", f"{len(texts)} --texts for {len(corpora)} --corpus")
    if needs_words and not texts and any(map(_holds_vectors, corpora)):
        raise OptionError(
            "--texts", "lexical and hybrid kinds need the texts of each --corpus, not only vectors"
        )
    return texts or corpora


def _check_pairs(path: Path) -> None:
    """Check that there are enough labelled pairs to fit a map."""
    labels = [pair.label for pair in read_option("--pairs", read_pairs, path)]
    matches, others = sum(labels), len(labels) - sum(labels)
    if min(matches, others) < MIN_OF_A_CLASS:
        raise OptionError(
            "--pairs",
            f"{path}: {matches} pairs with label 1 and {others} with label 0; "
            f"at least {MIN_OF_A_CLASS} of each are needed",
        )


def _holds_vectors(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _vectors(
    path: Path,
    checkpoint: Checkpoint,
) -> EmbeddedCorpus:
    if _holds_vectors(path):
        return read_embedded_corpus(path)
    loaded = load(checkpoint.directory)
    with show_progress(console) as progress:
        return embed_with_blocks(path, loaded.encoder, progress)


def _other_kinds(checkpoint: Checkpoint) -> dict[str, KindCalibration]:
    try:
        before = read_calibration(checkpoint)
    except CheckpointError as error:
        console.print(f"the old calibration is dropped: {error}")
        return {}
    return {} if before is None else dict(before.kinds)


def _print_maps(kinds: Mapping[str, KindCalibration]) -> None:
    table = Table("kind", "method", "log loss", "ECE", "ECE if perfect", box=None)
    for kind, fitted in kinds.items():
        fit = fitted.by_false_positive_rate
        for method, error in fit.errors.items():
            chosen = " (chosen)" if method == fit.method else ""
            figures = (error.log_loss, error.equal_mass, error.equal_mass_of_perfect)
            table.add_row(kind, method + chosen, *(f"{figure:.4f}" for figure in figures))
    Console().print(table)


def calibrate(
    data: DataOption = DEFAULT_DATA,
    false_positive_rate: Annotated[
        float,
        typer.Option(help="The rate to print a threshold for: 0.1, 0.03, 0.01, 0.003 or 0.001."),
    ] = 0.01,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
) -> None:
    """Measure the scores of random pairs of your documents in each mode; needs no labels.

    `longmatch index` and a server do it by themselves. Writes calibration.json into the data
    directory.
    """
    try:
        check_rate(false_positive_rate)
    except CorpusError as error:
        raise OptionError("--false-positive-rate", error) from error
    check_data_directory(data)
    check_output_folder(data, "--data")
    loaded = with_reading(open_checkpoint(checkpoint), data, None)
    adapter = read_corpus_adapter(data, loaded)
    space = vector_space(loaded, adapter)
    tuned = read_corpus_fusion(data, space.fingerprint)
    rule = None if tuned is None else tuned.rule
    with opened(data, space, read_only=True) as directory, show_progress(console) as progress:
        found = measure_scoring(directory.store, loaded, adapter, progress, rule)
    write_corpus_calibration(data, found)
    kinds = found.kinds
    kind = score_kind(DEFAULT_MODE, adapted=adapter is not None)
    measured, threshold = kinds[kind], threshold_for(kinds[kind], false_positive_rate)
    if as_json:
        print_json(
            {
                "documents": measured.documents,
                "pairs": measured.pairs,
                "kind": kind,
                "threshold": asdict(threshold),
                "kinds": _thresholds(kinds),
            }
        )
        return
    _print_thresholds(kinds)
    console.print(
        f"{data / CALIBRATION_FILE}: {measured.pairs} pairs of {measured.documents} documents; "
        f"{false_positive_rate:.1%} of them reach a {kind} score of {threshold.score:.4f}"
    )


def _thresholds(kinds: Mapping[str, NullDistribution]) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: [asdict(threshold) for threshold in measured.thresholds]
        for kind, measured in kinds.items()
    }


def _print_thresholds(kinds: Mapping[str, NullDistribution]) -> None:
    table = Table("kind of score", "false positives", "score", "95 % interval", box=None)
    for kind, measured in kinds.items():
        for threshold in measured.thresholds:
            rate = f"{100 * threshold.false_positive_rate:g} %"
            table.add_row(
                kind, rate, f"{threshold.score:.4f}", f"{threshold.low:.4f} to {threshold.high:.4f}"
            )
    Console().print(table)
