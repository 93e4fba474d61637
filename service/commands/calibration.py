"""`longmatch calibrate`: what scores are worth in one data directory."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from encoder.adapter import vector_space
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from index.corpus_adapter import read_corpus_adapter
from index.corpus_calibration import (
    CorpusCalibration,
    measure_store,
    write_corpus_calibration,
)
from index.data_directory import CALIBRATION_FILE
from index.fusion import read_fusion
from index.modes import DEFAULT_MODE
from index.random_pairs import RandomPairs, check_rate, threshold_for
from service.calibration import score_kind
from service.commands.common import (
    DEFAULT_DATA,
    CheckpointOption,
    DataOption,
    console,
    opened,
    print_json,
)
from service.console import observing


def calibrate(
    data: DataOption = DEFAULT_DATA,
    false_positive_rate: Annotated[
        float, typer.Option(help="The wished one: 0.1, 0.03, 0.01, 0.003 or 0.001.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Of the pairs that are drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
) -> None:
    """Measure how random pairs of your own documents score, in each mode; no labels are needed.

    Writes calibration.json into the data directory; a server reads it at its start.
    """
    check_rate(false_positive_rate)
    loaded = load_checkpoint(checkpoint or DEFAULT_CHECKPOINT)
    adapter = read_corpus_adapter(data, loaded)
    space, rule = vector_space(loaded, adapter), read_fusion(loaded)
    with opened(data, space, read_only=True) as directory, observing(console) as observer:
        by_mode = measure_store(directory.store, rule, observer, seed=seed)
    kinds = {score_kind(mode, adapted=adapter is not None): one for mode, one in by_mode.items()}
    write_corpus_calibration(data, CorpusCalibration(space.fingerprint, kinds, rule.lexical))
    kind = score_kind(DEFAULT_MODE, adapted=adapter is not None)
    measured, threshold = kinds[kind], threshold_for(kinds[kind], false_positive_rate)
    if as_json:
        print_json(
            {
                "documents": measured.documents,
                "pairs": measured.pairs,
                "seed": seed,
                "kind": kind,
                "threshold": asdict(threshold),
                "kinds": _thresholds(kinds),
            }
        )
        return
    _print_thresholds(kinds)
    console.print(
        f"{data / CALIBRATION_FILE}: {measured.pairs} pairs of {measured.documents} documents; a "
        f"{kind} score of {threshold.score:.4f} is reached by {false_positive_rate:.1%} of them"
    )


def _thresholds(kinds: Mapping[str, RandomPairs]) -> dict[str, list[dict[str, Any]]]:
    return {kind: [asdict(one) for one in measured.thresholds] for kind, measured in kinds.items()}


def _print_thresholds(kinds: Mapping[str, RandomPairs]) -> None:
    table = Table("kind of score", "false positives", "score", "95 % interval", box=None)
    for kind, measured in kinds.items():
        for one in measured.thresholds:
            rate = f"{100 * one.false_positive_rate:g} %"
            table.add_row(kind, rate, f"{one.score:.4f}", f"{one.low:.4f} to {one.high:.4f}")
    Console().print(table)
