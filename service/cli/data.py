"""Commands that maintain a data directory: snapshot, restore, doctor."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from encoder.checkpoint import Checkpoint
from index.directory.backup import restore_backup, write_backup
from index.directory.backup_archive import BackupManifest
from index.directory.data_directory import STORE_FILE
from index.directory.local_copy import bring_up_copy, forget_copy
from index.doctor.copy_checks import examine_copy
from index.doctor.examine import SAMPLE, Sampling, examine
from index.doctor.findings import Finding
from index.doctor.repair import repair as repair_data
from index.postgres.address import Database
from index.vectors.milvus.connection import MilvusAddress
from service.cli.checks import OptionError, check_new_path, check_output_folder, open_checkpoint
from service.cli.corpus_checks import (
    check_data_directory,
    check_own_documents,
)
from service.cli.options import (
    INPUT_SKIPPED,
    OK,
    CheckpointOption,
    DataArgument,
    PrecisionOption,
    console,
)
from service.cli.progress import printable, show_progress
from service.configuration.store import StoreSettings
from service.configuration.vectors import VectorSettings
from service.feedback.doctor import examine_feedback, repair_feedback
from service.jobs.doctor import examine_jobs, repair_jobs
from service.standing.doctor import examine_standing, repair_standing


def snapshot(
    data: DataArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A new folder, or a new file whose name ends in .tar."),
    ],
    checkpoint: CheckpointOption = None,
) -> None:
    """Write a backup of a data directory with its collections; a server may be running."""
    check_own_documents("snapshot")
    check_data_directory(data, "DATA")
    check_new_path(output)
    opened = open_checkpoint(checkpoint)
    manifest = write_backup(data, output, opened)
    size = sum(file.size for file in manifest.files.values())
    console.print(
        printable(
            f"{output}: {_held(manifest)}, {len(manifest.files)} files, {size} bytes; "
            f"written and verified"
        )
    )


def restore(
    backup: Annotated[Path, typer.Argument(help="A backup written by `longmatch snapshot`.")],
    data: DataArgument,
    checkpoint: CheckpointOption = None,
) -> None:
    """Restore a backup into a new or empty data directory, after verifying every file."""
    check_own_documents("restore")
    if not backup.exists():
        raise OptionError("BACKUP", f"{backup}: there is no such backup")
    check_output_folder(data, "DATA")
    opened = open_checkpoint(checkpoint)
    manifest = restore_backup(backup, data, opened)
    console.print(printable(f"{data}: {_held(manifest)}, backed up at {manifest.created}"))


def doctor(
    data: DataArgument,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Rebuild what can be rebuilt; no server may be running."),
    ] = False,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Examine a data directory: exit status 0 if no problem is found, 1 if one is.

    2 if a disk that is full or fails lets it not be examined.
    """
    check_data_directory(data, "DATA")
    opened = open_checkpoint(checkpoint, precision)
    with show_progress(console) as progress:
        sampling = Sampling(SAMPLE, precision, progress)
        milvus, database = VectorSettings().milvus, StoreSettings().database
        of_data, *of_files = _examine(data, opened, sampling, milvus, database)
        findings = (*of_data, *chain(*of_files))
        _print_findings(findings)
        if repair and any(finding.remedy.repairable for finding in findings):
            for mend, found in zip(_REPAIRS, of_files, strict=True):
                mend(data, found)
            if database is None:
                repair_data(data, opened, of_data, precision, progress, milvus)
            elif of_data:
                forget_copy(data)
                bring_up_copy(data, database)
            findings = tuple(chain(*_examine(data, opened, sampling, milvus, database)))
            console.print("after the repair:")
            _print_findings(findings)
    if any(finding.remedy.repairable for finding in findings):
        console.print("use --repair to repair what can be repaired")
    if not findings:
        console.print(printable(f"{data}: no problems found"))
    raise typer.Exit(INPUT_SKIPPED if findings else OK)


# What repairs each of the files that `_examine` examines after the documents.
_REPAIRS = (repair_jobs, repair_feedback, repair_standing)


def _examine(
    data: Path,
    checkpoint: Checkpoint,
    sampling: Sampling,
    milvus: MilvusAddress | None,
    database: Database | None,
) -> tuple[tuple[Finding, ...], ...]:
    """Return what is wrong with the documents, and with the files of the service beside them."""
    found = examine(data, checkpoint, sampling, milvus)
    if database is not None:
        found = (*found, *examine_copy(data / STORE_FILE, database, sampling.progress))
    return found, examine_jobs(data), examine_feedback(data), examine_standing(data)


def _held(manifest: BackupManifest) -> str:
    collections = "".join(f", the collection {name}" for name in manifest.collections)
    return f"{manifest.documents} documents{collections}"


def _print_findings(findings: Sequence[Finding]) -> None:
    for one in findings:
        remedy = (
            one.remedy.value if one.remedy.repairable else f"not repairable: {one.remedy.value}"
        )
        console.print(printable(f"{one.what}: {one.problem}: {remedy}"))
