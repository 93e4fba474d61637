"""Commands that maintain a data directory: delete, snapshot, restore, doctor."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from index.build import BATCH_DOCUMENTS, publish
from index.directory.backup import Backup, restore_backup, write_backup
from index.doctor import Finding, examine
from index.doctor import repair as repair_data
from index.store.document_store import DocumentStore
from index.store.filters import Filter
from service.cli import checks, opening, options
from service.cli.checks import OptionError, read_option
from service.cli.opening import opened
from service.cli.options import INPUT_SKIPPED, OK, console, say
from service.cli.progress import show_progress
from service.doctor import examine_service_files, repair_service_files
from service.match.filter import parse_filter
from service.settings import Settings


def delete(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Ids of the documents.")
    ] = None,
    where: options.FilterOption = None,
    data: options.DataOption = options.DEFAULT_DATA,
) -> None:
    """Delete documents from an index; their files stay. No server may be running.

    Exit status 1 if an id is unknown.
    """
    opening.check_data_directory(data)
    if bool(ids) == (where is not None):
        raise OptionError("ID", "name documents, or select them by --filter")
    chosen = None if where is None else read_option("--filter", parse_filter, where)
    with (
        opened(data, opening.space_of(data)) as directory,
        show_progress(console) as progress,
    ):
        store = directory.store
        before = len(store)
        known = list(store.content_hashes(ids or ())) if chosen is None else _select(store, chosen)
        for start in range(0, len(known), BATCH_DOCUMENTS):
            store.delete(known[start : start + BATCH_DOCUMENTS])
        publish(directory, progress)
        left = len(store)
    unknown = sorted(set(ids or ()) - set(known))
    for document_id in unknown:
        say(f"unknown: {document_id}")
    say(f"{data}: {left} documents; {before - left} deleted, {len(unknown)} unknown")
    raise typer.Exit(INPUT_SKIPPED if unknown else OK)


def _select(store: DocumentStore, where: Filter) -> list[str]:
    """Return the ids of the documents for which a filter holds."""
    found = store.select(where)
    numbers = np.flatnonzero(found.contains(np.arange(found.end))).tolist()
    batches = range(0, len(numbers), BATCH_DOCUMENTS)
    documents = (store.get(numbers[start : start + BATCH_DOCUMENTS]) for start in batches)
    return [summary.id for batch in documents for summary in batch.values()]


def snapshot(
    data: options.DataArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder.")],
) -> None:
    """Write a backup of a data directory with its collections; a server may be running."""
    opening.check_data_directory(data, "DATA", "back it up with pg_dump")
    checks.new_path(output)
    backup = write_backup(data, output)
    files = f"{backup.files} files, {backup.size} bytes"
    say(f"{output}: {_held(backup)}, {files}; written and verified")


def restore(
    backup: Annotated[Path, typer.Argument(help="A backup written by `longmatch snapshot`.")],
    data: options.DataArgument,
) -> None:
    """Restore a backup into a new or empty data directory, after verifying every file."""
    if not backup.exists():
        raise OptionError("BACKUP", f"{backup}: there is no such backup")
    if Settings().database is not None:
        raise OptionError("DATA", "LONGMATCH_DATABASE is set: restore that with pg_restore")
    checks.output_folder(data, "DATA")
    restored = restore_backup(backup, data)
    say(f"{data}: {_held(restored)}")


def doctor(
    data: options.DataArgument,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Rebuild what can be rebuilt; no server may be running."),
    ] = False,
    encoder: options.EncoderOption = None,
) -> None:
    """Examine a data directory: exit status 0 if no problem is found, 1 if one is.

    2 if a disk that is full or fails lets it not be examined.
    """
    opening.check_data_directory(data, "DATA", "examine that with pg_amcheck")
    opened = checks.open_checkpoint(encoder, data=data)
    with show_progress(console) as progress:
        of_documents = examine(data, opened)
        of_service = examine_service_files(data)
        findings = (*of_documents, *of_service)
        _print_findings(findings)
        if repair and any(finding.remedy.repairable for finding in findings):
            repair_service_files(data, of_service)
            repair_data(data, opened, of_documents, Settings().precision, progress)
            findings = (*examine(data, opened), *examine_service_files(data))
            console.print("after the repair:")
            _print_findings(findings)
    if any(finding.remedy.repairable for finding in findings):
        console.print("use --repair to repair what can be repaired")
    if not findings:
        say(f"{data}: no problems found")
    raise typer.Exit(INPUT_SKIPPED if findings else OK)


def _held(backup: Backup) -> str:
    collections = "".join(f", the collection {name}" for name in backup.collections)
    return f"{backup.documents} documents{collections}"


def _print_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        hopeless = "" if finding.remedy.repairable else "not repairable: "
        say(f"{finding.what}: {finding.problem}: {hopeless}{finding.remedy.value}")
