"""The command reencode: a data directory moves to other vectors, perhaps only to better ones.

Other vectors are tested in shadow beside the present ones, with the queries of the feedback that
the new checkpoint did not learn from, by the record that `longmatch lab train --feedback` leaves in
it. Where it has none, or the checkpoint stays, as with another reading share, all queries count.
"""

import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import compress
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder.atomic_files import write_atomically
from encoder.checkpoint import WHOLE, Checkpoint
from encoder.encoder import Encoder
from evaluation.fitting.feedback import MIN_TESTED, Candidate, run_shadow_test
from evaluation.fitting.judged_queries import JudgedQuery, not_learned
from index import reencode as reencoding
from index.directory.data_directory import SHADOW_TEST_FILE, DataDirectory, open_data_directory
from index.optional_dependencies import require_extra
from index.progress import Progress
from index.reencode import Reencoded
from index.search.calibrate import LiveScoring, open_scoring
from index.sqlite.connections import utc_now
from service.cli import checks, opening, options, tune
from service.cli.checks import OptionError
from service.cli.opening import load
from service.cli.options import console, print_json, resumable, say
from service.cli.progress import show_progress
from service.settings import Settings
from training.data.corpus_folder import TRAINING, read_learned

_WEIGHTS = ("hybrid_alignment_weight", "lexical_weight")


def open_trial(data: Path, new: Checkpoint) -> tuple[list[JudgedQuery], list[JudgedQuery]]:
    """Check that other vectors can be tested; return all queries, and those to test with."""
    reencoding.require_another(data, new)
    present = checks.open_checkpoint(None, data=data)
    # Of one checkpoint both sides have learned the same.
    learned = [] if present.fingerprint == new.fingerprint else _read_learned(new)
    with closing(tune.open_store(data)) as store:
        judged = tune.read_judged(data, store)
        chosen = not_learned(judged, tune.keys_of_texts(data, store, learned))
    held_out = [query for query in compress(judged, chosen) if query.compares and query.relevant]
    if len(held_out) < MIN_TESTED:
        raise OptionError(
            "--only-if-better",
            f"{data}: {len(held_out)} queries of the feedback with a relevant match and one that "
            f"is less so are left that it did not learn from, and it takes {MIN_TESTED}: give more "
            "(POST /feedback), or wait for it",
        )
    return judged, held_out


def run_trial(
    judged: Sequence[JudgedQuery],
    compared: Sequence[JudgedQuery],
    made: Reencoded,
    progress: Progress,
) -> dict[str, Any]:
    """Search in the present and in the new content; return the report of the test, for JSON."""
    served = load(None, data=made.data)
    new = made.encoder
    with _opened(made.data, served) as old, _opened(made.content, new) as fresh:
        sides = ((served, old), (new, fresh))
        texts = tune.passages(old, judged, progress)
        held_out = tune.searchable(sides, compared, progress)
        known = tune.searchable(sides, texts, progress, complete=True)
        if len(held_out[0]) < MIN_TESTED or not known[0]:
            raise OptionError(
                "--only-if-better",
                f"{made.data}: {len(held_out[0])} held-out queries and {len(known[0])} passages "
                f"can be read by both checkpoints, and it takes {MIN_TESTED} and 1",
            )
        before, after = (
            Candidate(
                directory,
                open_scoring(loaded.checkpoint, directory.path).rule,
                held_out[number],
                known[number],
            )
            for number, (loaded, directory) in enumerate(sides)
        )
        found = run_shadow_test(before, after, progress)
    return {
        "created": utc_now(),
        "present": _named(served, before),
        "new": _named(new, after),
        **asdict(found),
    }


def _read_learned(new: Checkpoint) -> list[bytes]:
    """Return the SHA-256 of the texts that a checkpoint learned from, by its record."""
    try:
        return [bytes.fromhex(digest) for digest in read_learned(new.directory / TRAINING) or ()]
    except ValueError as error:
        reason = f"{new.directory}: its record of training is damaged: {error}"
        raise OptionError("--encoder", reason) from error


def _opened(data: Path, encoder: Encoder) -> closing[DataDirectory]:
    """Open a data directory for reading; both sides search with an index in this process."""
    return closing(
        open_data_directory(
            data, fingerprint=encoder.fingerprint, dimension=encoder.dimension, read_only=True
        )
    )


def _named(loaded: Encoder, candidate: Candidate) -> dict[str, Any]:
    return {
        "checkpoint": loaded.checkpoint.name,
        "fingerprint": loaded.fingerprint,
        "rule": asdict(candidate.rule),
    }


def reencode(
    data: options.DataArgument,
    encoder: options.EncoderOption = None,
    reading_share: Annotated[
        float | None,
        typer.Option(help="The new share of the sentence blocks to encode; unchanged by default."),
    ] = None,
    only_if_better: Annotated[
        bool,
        typer.Option(
            "--only-if-better",
            help="Test in shadow with the feedback of users, and swap only if the new are better.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Test, and swap nothing whatever the result is.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Move a data directory to another encoder or reading share; run it again to resume.

    With --only-if-better it is moved if held-out feedback says that matches become better.
    """
    if encoder is None and reading_share is None:
        raise OptionError("--encoder", "name the new encoder, or a --reading-share")
    for option, given in (("--dry-run", dry_run), ("--json", as_json)):
        if given and not only_if_better:
            raise OptionError(option, "is for --only-if-better")
    opening.check_data_directory(data, "DATA", "index into a new database")
    if only_if_better:
        require_extra("evaluate", "reencode --only-if-better")
        tune.check_enough(data, MIN_TESTED, "--only-if-better", compared=True)
    opened = opening.with_reading(checks.open_checkpoint(encoder, data=data), data, reading_share)
    trial = open_trial(data, opened) if only_if_better else None
    report = None
    with resumable("; until then the old vectors are used"), reencoding.only_reencoding(data):
        with show_progress(console) as progress:
            made = reencoding.reencode_documents(data, opened, Settings().precision, progress)
            with _opened(made.content, made.encoder) as fresh:
                LiveScoring(opened, fresh).measure(progress)
            if trial is not None:
                report = run_trial(*trial, made, progress)
        swap = report is None or _is_to_be_adopted(made, report, dry_run=dry_run)
        if swap:
            with show_progress(console) as progress:
                documents = reencoding.put_in_place(replace(made, progress=progress))
    if as_json:
        print_json(report)
    if swap:
        share = f", reading share {opened.reading_share:g}" if opened.reading_share < WHOLE else ""
        say(f"{data}: {documents} documents, now of checkpoint {opened.name}{share}")


def _is_to_be_adopted(made: Reencoded, report: dict[str, Any], *, dry_run: bool) -> bool:
    """Say what the test found, and keep the new content with the report, or delete it."""
    report["adopted"] = report["refused"] is None and not dry_run
    for side in ("present", "new"):
        facts = report[side]
        weights = ", ".join(f"{name} {facts['rule'][name]:g}" for name in _WEIGHTS)
        say(f"{side}: {facts['checkpoint']} ({weights})")
    tune.print_comparisons(report)
    if report["refused"] is not None:
        shutil.rmtree(made.content)
        say(f"{made.data}: not moved, nothing has changed: {report['refused']}")
    elif dry_run:
        say(
            f"{made.data}: better; nothing has changed, for want of a run without --dry-run, "
            f"which finds the new vectors in {made.content.name}"
        )
    else:
        write_atomically(made.content / SHADOW_TEST_FILE, json.dumps(report, indent=2) + "\n")
    return bool(report["adopted"])
