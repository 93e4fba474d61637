"""The command reencode: a data directory moves to other vectors, perhaps only to better ones."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder.checkpoint import WHOLE
from evaluation.fitting.feedback import OTHERS
from index.reencode import (
    Reencoded,
    discard,
    only_reencoding,
    put_in_place,
    reencode_documents,
)
from service.cli.checks import OptionError, open_checkpoint
from service.cli.feedback.replace import (
    check_trial,
    keep_report,
    open_trial,
    print_report,
    run_trial,
)
from service.cli.indexing.checks import check_data_directory
from service.cli.opening import with_reading
from service.cli.options import (
    INTERRUPTED,
    RESUMABLE,
    CheckpointOption,
    DataArgument,
    PrecisionOption,
    console,
    print_json,
)
from service.cli.progress import printable, show_progress


def reencode(
    data: DataArgument,
    checkpoint: CheckpointOption = None,
    reading_share: Annotated[
        float | None,
        typer.Option(help="The new share of the sentence blocks to encode; unchanged by default."),
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Fit the vectors to the stored texts, as index --adapt.")
    ] = False,
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
    served: Annotated[
        Path | None,
        typer.Option(
            envvar="LONGMATCH_CHECKPOINT",
            help="With --only-if-better: the checkpoint of the present vectors.",
        ),
    ] = None,
    others: Annotated[
        int,
        typer.Option(min=20, help="Passages of other documents that must not get worse matches."),
    ] = OTHERS,
    seed: Annotated[int, typer.Option(help="Of the choice of these passages.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report of the test as JSON.")
    ] = False,
    precision: PrecisionOption = None,
) -> None:
    """Move a data directory to another checkpoint or reading share; run it again to resume.

    With --only-if-better it is moved if held-out feedback says that matches become better.
    """
    if checkpoint is None and reading_share is None and not adapt:
        raise OptionError("--checkpoint", "name the new checkpoint, a --reading-share, or --adapt")
    for option, given in (("--dry-run", dry_run), ("--json", as_json)):
        if given and not only_if_better:
            raise OptionError(option, "is for --only-if-better")
    check_data_directory(data, "DATA")
    if only_if_better:
        check_trial(data)
    opened = with_reading(open_checkpoint(checkpoint, precision), data, reading_share)
    trial = open_trial(data, opened, served, adapt=adapt) if only_if_better else None
    report = None
    try:
        with only_reencoding(data):
            with show_progress(console) as progress:
                made = reencode_documents(data, opened, precision, progress, adapt=adapt)
                if trial is not None:
                    report = run_trial(trial, made, others, seed, progress)
            swap = report is None or _is_to_be_adopted(made, report, dry_run=dry_run)
            if swap:
                with show_progress(console) as progress:
                    documents = put_in_place(replace(made, progress=progress))
    except KeyboardInterrupt:
        console.print(f"{RESUMABLE}; until then the old vectors are used")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(report)
    if swap:
        share = f", reading share {opened.reading_share:g}" if opened.reading_share < WHOLE else ""
        said = f"{data}: {documents} documents, now of checkpoint {opened.name}{share}"
        console.print(printable(said))


def _is_to_be_adopted(made: Reencoded, report: dict[str, Any], *, dry_run: bool) -> bool:
    """Say what the test found, and keep the new content with the report, or delete it."""
    report["adopted"] = report["refused"] is None and not dry_run
    print_report(report)
    if report["refused"] is not None:
        discard(made)
        console.print(
            printable(f"{made.data}: not moved, nothing has changed: {report['refused']}")
        )
    elif dry_run:
        console.print(
            printable(
                f"{made.data}: better; nothing has changed, for want of a run without --dry-run, "
                f"which finds the new vectors in {made.content.name}"
            )
        )
    else:
        keep_report(made, report)
    return bool(report["adopted"])
