"""Commands that keep data safe: snapshot, restore."""

from pathlib import Path
from typing import Annotated

import typer

from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from index.backup import restore_backup, write_backup
from service.commands.common import CheckpointOption, console
from service.console import printable

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
