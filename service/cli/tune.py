"""The command tune: weights fitted to feedback, adopted only if they are better."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder.calibration import FittedMap
from encoder.encoder import Encoder
from evaluation.fitting.feedback import (
    HELD_OUT,
    MIN_QUERIES,
    MIN_TESTED,
    Candidate,
    ShadowTest,
    fit_probabilities,
    fit_rule,
    run_shadow_test,
)
from evaluation.fitting.judged_queries import JudgedQuery, hold_out
from index.directory.data_directory import CALIBRATION_FILE, DataDirectory
from index.optional_dependencies import require_extra
from index.progress import Progress
from index.search.calibrate import measure_scoring, open_scoring
from index.search.corpus_calibration import write_corpus_calibration
from index.search.score import (
    CorpusFusion,
    LinearFusion,
    changed_kinds,
    write_corpus_fusion,
)
from index.sqlite.connections import utc_now
from service.cli.checks import OptionError, check_output_folder
from service.cli.corpus_checks import check_data_directory
from service.cli.feedback import asked, check_enough, described, passages, read_judged
from service.cli.opening import load, opened
from service.cli.options import DataArgument, EncoderOption, console, print_json
from service.cli.progress import show_progress


def tune(
    data: DataArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Test, and adopt nothing whatever the result is.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    encoder: EncoderOption = None,
) -> None:
    """Fit the weights of vectors, alignment and words to feedback, and adopt them if better.

    One half of the queries is held out to test them. No document is encoded again. A server may be
    running, which uses the new weights from its next start.
    """
    require_extra("evaluate", "tune", "ir_measures")
    require_extra("evaluate", "tune", "scipy")
    require_extra("evaluate", "tune", "sklearn")
    check_data_directory(data, "DATA")
    check_output_folder(data, "DATA")
    check_enough(data, MIN_QUERIES, "DATA", compared=True)
    loaded = load(encoder, data=data)
    present = open_scoring(loaded.checkpoint, data).fusion
    with opened(data, loaded, read_only=True) as directory:
        judged = read_judged(data, directory.store)
        parts = _divide(data, [query for query in judged if query.compares])
        with show_progress(console) as progress:
            fitted, held_out = (
                [query for query in asked(loaded, directory, part, progress) if query is not None]
                for part in parts
            )
            new = fit_rule(directory, present, fitted, progress)
            texts = passages(directory, judged, progress)
            found = asked(loaded, directory, texts, progress, complete=True)
            known = [query for query in found if query is not None]
            tuned = Candidate(directory, new, held_out, known)
            before = Candidate(directory, present, held_out, known)
            test = run_shadow_test(before, tuned, progress)
            report = _report((present, new), len(fitted), test, dry_run=dry_run)
            if report["adopted"]:
                maps = _probabilities(loaded, present, tuned, report, progress)
                adopted = CorpusFusion(loaded.fingerprint, new, report, maps)
                _adopt(data, directory, loaded, adopted, progress)
    if as_json:
        print_json(report)
        return
    _print(data, report, test)


def _divide(
    data: Path, judged: Sequence[JudgedQuery]
) -> tuple[list[JudgedQuery], list[JudgedQuery]]:
    """Return the queries to fit to and those to test with; neither part is nearly empty."""
    held = hold_out(judged, HELD_OUT)
    fitted = [query for query, out in zip(judged, held, strict=True) if not out]
    tested = [query for query, out in zip(judged, held, strict=True) if out]
    if min(len(fitted), len(tested)) < MIN_TESTED:
        raise OptionError(
            "DATA",
            f"{data}: too many queries of the feedback are of one text or answers of one another: "
            f"they divide into {len(fitted)} and {len(tested)}, and each part takes {MIN_TESTED}",
        )
    return fitted, tested


def _probabilities(
    loaded: Encoder,
    present: LinearFusion,
    tuned: Candidate,
    report: dict[str, Any],
    progress: Progress,
) -> dict[str, FittedMap]:
    """Fit what scores that changed are worth, where there are verdicts enough; add to the report.

    By the held-out queries: to the others the weights were fitted.
    """
    kind = "hybrid"
    report["probabilities"] = {}
    if kind not in changed_kinds(present, tuned.rule):
        return {}
    found = fit_probabilities(tuned, progress)
    report["probabilities"][kind] = {
        "relevant": found.relevant,
        "not_relevant": found.not_relevant,
        "queries": found.queries,
        "refused": found.refused,
    }
    return {} if found.fitted is None else {kind: found.fitted}


def _adopt(
    data: Path, directory: DataDirectory, loaded: Encoder, fusion: CorpusFusion, progress: Progress
) -> None:
    """Write the new rule, and measure the scores of random pairs again if they were measured.

    After a kill there is the old rule or the new one, perhaps without a calibration.
    """
    path = data / CALIBRATION_FILE
    measured = None
    if path.exists():
        measured = measure_scoring(directory.store, loaded.checkpoint, progress, fusion.rule)
        path.unlink()
    write_corpus_fusion(data, fusion)
    if measured is not None:
        write_corpus_calibration(data, measured)


def _report(
    rules: tuple[LinearFusion, LinearFusion], fitted: int, found: ShadowTest, *, dry_run: bool
) -> dict[str, Any]:
    return {
        "created": utc_now(),
        "present": asdict(rules[0]),
        "new": asdict(rules[1]),
        "fitted_to": fitted,
        **asdict(found),
        "adopted": found.refused is None and not dry_run,
    }


def _print(data: Path, report: dict[str, Any], found: ShadowTest) -> None:
    for name in ("hybrid_alignment_weight", "lexical_weight"):
        console.print(f"{name}: {report['present'][name]:g} -> {report['new'][name]:g}")
    console.print(described("held-out queries", report["held_out"]))
    console.print(described("passages of other documents", report["others"]))
    if found.refused is not None:
        console.print(f"{data}: not adopted, nothing has changed: {found.refused}")
    elif not report["adopted"]:
        console.print(f"{data}: better; nothing has changed, for want of a run without --dry-run")
    else:
        for kind, outcome in report["probabilities"].items():
            pairs = f"{outcome['relevant']} relevant matches and {outcome['not_relevant']} others"
            fitted = "fitted" if outcome["refused"] is None else f"unknown: {outcome['refused']}"
            console.print(f"probabilities of {kind} scores, by {pairs}: {fitted}")
        console.print(f"{data}: adopted; a server uses it from its next start")
