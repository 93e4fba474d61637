"""Commands that say what a score is worth: calibrate, fit-calibration."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from encoder.adapter import vector_space
from encoder.calibration import (
    Calibration,
    FittedMap,
    FittedOn,
    KindCalibration,
    read_calibration,
    write_calibration,
)
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, file_digest, load_checkpoint
from encoder.errors import CheckpointError
from index.calibrate import ScoredPairs, fit_kind
from index.corpus_adapter import read_corpus_adapter
from index.corpus_calibration import (
    CALIBRATION_FILE,
    CorpusCalibration,
    measure_store,
    write_corpus_calibration,
)
from index.embed import EmbeddedCorpus, embed_corpus, read_embedded_corpus
from index.pairs import find_pairs, read_pairs
from index.random_pairs import (
    RandomPairs,
    check_rate,
    measure_random_pairs,
    pair_scores,
    threshold_for,
)
from service.calibration import score_kind
from service.commands.common import (
    DEFAULT_DATA,
    CheckpointOption,
    DataOption,
    PrecisionOption,
    ProviderOption,
    ThreadsOption,
    console,
    load,
    opened,
    print_json,
)
from service.console import observing

VectorKind = Literal["semantic", "adapted"]


def calibrate(
    data: DataOption = DEFAULT_DATA,
    false_positive_rate: Annotated[
        float, typer.Option(help="The wished one: 0.1, 0.03, 0.01, 0.003 or 0.001.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Of the pairs that are drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
) -> None:
    """Measure how random pairs of your own documents score; no labels are needed.

    Writes calibration.json into the data directory; a server reads it at its start.
    """
    check_rate(false_positive_rate)
    loaded = load_checkpoint(checkpoint or DEFAULT_CHECKPOINT)
    adapter = read_corpus_adapter(data, loaded)
    space = vector_space(loaded, adapter)
    with opened(data, space, read_only=True) as directory:
        measured = measure_store(directory.store, seed=seed)
    kind = score_kind("semantic", adapted=adapter is not None)
    write_corpus_calibration(data, CorpusCalibration(space.fingerprint, {kind: measured}))
    threshold = threshold_for(measured, false_positive_rate)
    if as_json:
        print_json(
            {
                "documents": measured.documents,
                "pairs": measured.pairs,
                "seed": seed,
                "threshold": asdict(threshold),
                "thresholds": [asdict(one) for one in measured.thresholds],
            }
        )
        return
    _print_thresholds(measured)
    console.print(
        f"{data / CALIBRATION_FILE}: {measured.pairs} pairs of {measured.documents} documents; a "
        f"score of {threshold.score:.4f} is reached by {false_positive_rate:.1%} of them"
    )


def fit_calibration(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint directory to write into.")],
    pairs: Annotated[
        list[Path],
        typer.Option(help="Labelled pairs, JSON Lines; may be given again, with its --corpus."),
    ],
    corpus: Annotated[
        list[Path],
        typer.Option(
            help="The corpus of these pairs, or its vectors as `longmatch embed` wrote them (.npz)."
        ),
    ],
    kind: Annotated[
        VectorKind, typer.Option(help="Of the vectors: adapted are those of `embed --adapt`.")
    ] = "semantic",
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Fit match probabilities on labelled pairs and write them into a checkpoint.

    The first --pairs goes with the first --corpus, and so on; each corpus counts the same. Use
    pairs that the checkpoint was not trained on.
    """
    if kind == "adapted" and any(path.suffix.lower() != ".npz" for path in corpus):
        raise typer.BadParameter("--kind adapted takes vectors of `embed --adapt` as --corpus")
    if len(pairs) != len(corpus):
        raise typer.BadParameter(
            f"{len(pairs)} --pairs for {len(corpus)} --corpus: each file of pairs needs its corpus"
        )
    opened_checkpoint = load_checkpoint(checkpoint)
    scored = []
    for pairs_file, corpus_path in zip(pairs, corpus, strict=True):
        embedded = _vectors(corpus_path, opened_checkpoint, precision, provider, threads)
        scored.append(score_corpus(pairs_file, embedded, seed))
    fitted = fit_kind(scored, seed=seed)
    kinds = {**_other_kinds(opened_checkpoint), kind: fitted}
    calibration = Calibration(opened_checkpoint.fingerprint, kinds)
    write_calibration(opened_checkpoint, calibration)
    if as_json:
        print_json({"version": calibration.version, **asdict(fitted)})
        return
    _print_maps(fitted)
    console.print(f"{checkpoint}: calibration {calibration.version}")


def score_corpus(pairs_file: Path, corpus: EmbeddedCorpus, seed: int) -> ScoredPairs:
    """Score labelled pairs, and random pairs, of a corpus.

    Raises:
        CorpusError: the pairs cannot be read, a document of them is missing, or the corpus is too
            small.
    """
    rows = find_pairs(read_pairs(pairs_file), corpus.ids)
    scores = pair_scores(corpus.vectors, np.stack([rows.sources, rows.targets], axis=1))
    labels = rows.labels.astype(np.int64)
    name = f"{pairs_file.absolute().parent.name}/{pairs_file.name}"
    return ScoredPairs(
        FittedOn(name, len(labels), int(labels.sum()), file_digest(pairs_file)),
        scores,
        labels,
        measure_random_pairs(corpus.vectors, seed=seed),
    )


def _vectors(
    path: Path,
    checkpoint: Checkpoint,
    precision: str | None,
    provider: list[str] | None,
    threads: int | None,
) -> EmbeddedCorpus:
    if path.suffix.lower() == ".npz":
        return read_embedded_corpus(path)
    loaded = load(checkpoint.directory, precision, provider, threads)
    with observing(console) as observer:
        return embed_corpus(path, loaded.tokenizer, loaded.encoder, observer)


def _other_kinds(checkpoint: Checkpoint) -> dict[str, KindCalibration]:
    try:
        before = read_calibration(checkpoint)
    except CheckpointError as error:
        console.print(f"the old calibration is not kept: {error}")
        return {}
    return {} if before is None else dict(before.kinds)


def _print_thresholds(measured: RandomPairs) -> None:
    table = Table("false positives", "score", "95 % interval", box=None)
    for one in measured.thresholds:
        rate = f"{100 * one.false_positive_rate:g} %"
        table.add_row(rate, f"{one.score:.4f}", f"{one.low:.4f} to {one.high:.4f}")
    Console().print(table)


def _print_maps(fitted: KindCalibration) -> None:
    table = Table("probability from", "method", "log loss", "ECE", "of a perfect one", box=None)
    maps: Sequence[tuple[str, FittedMap]] = (
        ("score", fitted.by_score),
        ("false positive rate", fitted.by_false_positive_rate),
    )
    for name, one in maps:
        for method, error in one.errors.items():
            chosen = " (chosen)" if method == one.method else ""
            figures = (error.log_loss, error.equal_mass, error.equal_mass_of_perfect)
            table.add_row(name, method + chosen, *(f"{figure:.4f}" for figure in figures))
    Console().print(table)
