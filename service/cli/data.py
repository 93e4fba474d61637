"""Commands that keep data safe: snapshot, restore, doctor, reencode."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from index.directory.backup import restore_backup, write_backup
from index.doctor.examine import SAMPLE, Sampling, examine
from index.doctor.findings import Finding
from index.doctor.repair import repair as repair_data
from index.reencode import reencode as reencode_data
from service.cli.options import INTERRUPTED, OK, REFUSED, CheckpointOption, PrecisionOption, console
from service.cli.progress import printable, show_progress

DataArgument = Annotated[Path, typer.Argument(envvar="LONGMATCH_DATA", help="The data directory.")]


def snapshot(
    data: DataArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A new folder, or a new file that ends in .tar.")
    ],
    checkpoint: CheckpointOption = None,
) -> None:
    """Write a backup of a data directory and read it back; a server may be running on it."""
    opened = load_checkpoint(checkpoint or DEFAULT_CHECKPOINT)
    manifest = write_backup(data, output, opened)
    size = sum(one.size for one in manifest.files.values())
    console.print(
        printable(
            f"{output}: {manifest.documents} documents, {len(manifest.files)} files, {size} bytes; "
            f"written, read back, every checksum is right"
        )
    )


def restore(
    backup: Annotated[Path, typer.Argument(help="What `longmatch snapshot` wrote.")],
    data: DataArgument,
    checkpoint: CheckpointOption = None,
) -> None:
    """Restore a backup into a new or empty data directory, every file checked before."""
    opened = load_checkpoint(checkpoint or DEFAULT_CHECKPOINT)
    manifest = restore_backup(backup, data, opened)
    console.print(printable(f"{data}: {manifest.documents} documents of {manifest.created}"))


def doctor(
    data: DataArgument,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what can be rebuilt; no server may run.")
    ] = False,
    sample: Annotated[
        int, typer.Option(min=0, help="Documents to encode again and compare.")
    ] = SAMPLE,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Examine a data directory; exit status 0: all is sound, 1: something is wrong."""
    opened = load_checkpoint(checkpoint or DEFAULT_CHECKPOINT)
    with show_progress(console) as progress:
        sampling = Sampling(sample, precision, progress)
        findings = examine(data, opened, sampling)
        _print_findings(findings)
        if repair and any(one.remedy.repairable for one in findings):
            repair_data(data, opened, findings, precision, progress)
            findings = examine(data, opened, sampling)
            console.print("after the repair:")
            _print_findings(findings)
    if any(one.remedy.repairable for one in findings):
        console.print("--repair does what can be done")
    if not findings:
        console.print(printable(f"{data}: all is sound"))
    raise typer.Exit(REFUSED if findings else OK)


def reencode(
    data: DataArgument,
    checkpoint: Annotated[Path, typer.Option(help="The checkpoint to move to.")],
    precision: PrecisionOption = None,
) -> None:
    """Move a data directory to another checkpoint; give the command again to go on."""
    opened = load_checkpoint(checkpoint)
    try:
        with show_progress(console) as progress:
            documents = reencode_data(data, opened, precision, progress)
    except KeyboardInterrupt:
        console.print("stopped, the old vectors serve: the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from None
    console.print(printable(f"{data}: {documents} documents, of checkpoint {opened.name} now"))


def _print_findings(findings: Sequence[Finding]) -> None:
    for one in findings:
        remedy = (
            one.remedy.value if one.remedy.repairable else f"not repairable: {one.remedy.value}"
        )
        console.print(printable(f"{one.what}: {one.problem}: {remedy}"))
