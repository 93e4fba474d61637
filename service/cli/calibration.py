"""Commands that calibrate scores: lab fit-calibration (a checkpoint), calibrate (documents)."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from encoder.calibration import Calibration, KindCalibration, write_calibration
from encoder.checkpoint import vector_space
from evaluation.fitting.calibration import ScoredPairs, fit_kind, read_scored_pairs
from index.directory.data_directory import CALIBRATION_FILE
from index.optional_dependencies import require_extra
from index.search.corpus_calibration import measure_store
from index.search.records import DEFAULT_MODE, Mode
from index.search.score import CorpusFusion, read_fusion
from service.cli import checks, opening, options
from service.cli.checks import OptionError
from service.cli.opening import load, opened
from service.cli.options import console, print_json, results
from service.cli.progress import show_progress


def fit_calibration(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint directory to write into.")],
    data: Annotated[
        Path,
        typer.Option(
            help="A folder of folders with corpus.jsonl.gz, qrels.tsv and splits.tsv each."
        ),
    ],
    blocks: Annotated[
        Path, typer.Option(help="A folder that keeps their block vectors; made if it is missing.")
    ],
) -> None:
    """Fit match probabilities to judged corpora and write them into a checkpoint.

    For every mode, to queries of split valid: their relevant documents, and as many drawn at
    random. Each corpus counts the same. Use corpora that the checkpoint was not trained on, the
    more the better; the printed errors are each of a map that was fitted without the corpus.
    """
    require_extra("evaluate", "lab fit-calibration", "sklearn")
    known = checks.open_checkpoint(checkpoint, option="CHECKPOINT")
    checks.output_folder(checkpoint, "CHECKPOINT")
    folders = sorted(path.parent for path in data.glob("*/qrels.tsv"))
    if len(folders) < 2:
        raise OptionError("--data", f"{data}: holds {len(folders)} corpora with qrels.tsv, not 2")
    encoder = load(str(known.directory))
    scored: list[Mapping[Mode, ScoredPairs]] = []
    for folder in folders:
        with show_progress(console) as progress:
            scored.append(read_scored_pairs(folder, blocks / folder.name, encoder, progress)[2])
    fitted: dict[str, KindCalibration] = {
        mode: fit_kind([pairs[mode] for pairs in scored]) for mode in scored[0]
    }
    calibration = Calibration(known.fingerprint, fitted)
    write_calibration(known, calibration)
    names = [folder.name for folder in folders]
    table = Table("error without the corpus", *names, "all", "of a perfect map", box=None)
    for mode, kind in fitted.items():
        errors = [kind.by_corpus[name] for name in names]
        errors += [kind.error.equal_mass, kind.error.equal_mass_of_perfect]
        table.add_row(mode, *(f"{error:.3f}" for error in errors))
    results.print(table)
    console.print(f"{checkpoint}: calibration {calibration.version}")


def calibrate(
    data: options.DataOption = options.DEFAULT_DATA,
    as_json: options.JsonOption = False,
    encoder: options.EncoderOption = None,
) -> None:
    """Measure the scores of random pairs of your documents in each mode; needs no labels.

    `longmatch index` and a server do it by themselves. Writes calibration.json into the data
    directory.
    """
    opening.check_data_directory(data)
    checks.output_folder(data, "--data")
    loaded = opening.find_checkpoint(encoder, data=data)
    tuned = CorpusFusion.read(data, vector_space(loaded).fingerprint)
    rule = read_fusion(loaded) if tuned is None else tuned.rule
    with opened(data, loaded, read_only=True) as directory, show_progress(console) as progress:
        found = measure_store(directory.store, rule, progress)
    found.write(data)
    kinds = found.kinds
    measured = kinds[DEFAULT_MODE]
    if as_json:
        facts = {"documents": measured.documents, "pairs": measured.pairs}
        thresholds = {
            kind: [asdict(threshold) for threshold in of_kind.thresholds]
            for kind, of_kind in kinds.items()
        }
        print_json({**facts, "kinds": thresholds})
        return
    table = Table("kind of score", "false positives", "score", box=None)
    for kind, of_kind in kinds.items():
        for threshold in of_kind.thresholds:
            rate = f"{100 * threshold.false_positive_rate:g} %"
            table.add_row(kind, rate, f"{threshold.score:.4f}")
    results.print(table)
    console.print(
        f"{data / CALIBRATION_FILE}: {measured.pairs} pairs of {measured.documents} documents"
    )
