"""Examine a data directory and its checkpoint: what is wrong, and what helps; and repair it.

The examination only reads, so a server may be running. What cannot be trusted after some damage is
not examined: rows of a broken database. Nor are snapshots of the index, which are compared with
their checksums on every opening, and then made again.

What follows from the documents is deleted and rebuilt. In the store, SQLite rebuilds its file and
its indexes; vectors follow from the texts; documents whose text has changed are removed, and
appended to a file. Each step is one transaction: after a kill, repair again.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from encoder.alignment.space import open_space
from encoder.checkpoint import Checkpoint, VectorSpace, read_verified, vector_space
from encoder.errors import EncoderError
from encoder.opening import open_encoder
from index.alignment.spaces import find_space, load_space
from index.build import encode_documents, finish
from index.directory.data_directory import (
    DAMAGED_FILE,
    FOLLOWER_FILES,
    SNAPSHOT_FILE,
    STORE_FILE,
    delete,
    locked,
    open_data_directory,
    with_share_of,
)
from index.document import Document
from index.errors import IndexingError, StoreError
from index.followers import FILE_ENDINGS
from index.lexical.segmented_index import LEXICAL_DIRECTORY
from index.lexical.snapshot import load_snapshot
from index.lexical.tables import WORDS_FILE, read_manifest, read_state
from index.progress import Progress
from index.search.corpus_calibration import CorpusCalibration
from index.search.score import CorpusFusion
from index.sqlite.connections import (
    DATABASE_ERRORS,
    SQLiteConnections,
    open_reader,
    storage_error,
    vector_id_list,
)
from index.store.checksums import file_problems, find_damage
from index.store.filters import METADATA_SCHEMA, insert_metadata
from index.store.rows import advance_sequence, insert_encoding, remove_documents
from index.store.schema import STORE, read_space

_PROBLEMS_SHOWN = 5
_ENCODED_A_TRANSACTION = 64
_OF_DAMAGE = (AttributeError, TypeError, ValueError)  # by a value that is another one now
_WITHOUT_DOCUMENT = "vector_id NOT IN (SELECT vector_id FROM documents)"
_TEXTS = """
SELECT vector_id, text FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?))"""
_DAMAGED = """
SELECT id, title, text, metadata FROM documents
WHERE vector_id IN (SELECT value FROM json_each(?)) ORDER BY vector_id"""


class Remedy(Enum):
    """What helps against a finding, in the words of the command line."""

    REBUILD = "delete and rebuild all that follows from the documents"
    ENCODE = "encode again"
    REMOVE_DAMAGED = "remove them, and keep what can be read of them in damaged.jsonl"
    MOVE_AWAY = "move it into a folder whose name ends in .damaged, and begin a new one"
    END_JOB = "end the job as failed, send the upload again"
    DELETE = "delete it"
    RESTORE_BACKUP = "restore a backup"
    REINSTALL = "install it again"

    @property
    def repairable(self) -> bool:
        """Whether `repair` can do it: it needs nothing but the data directory and checkpoint."""
        return self not in (Remedy.RESTORE_BACKUP, Remedy.REINSTALL)


_IN_THE_STORE = (Remedy.REBUILD, Remedy.ENCODE, Remedy.REMOVE_DAMAGED)


def require_damage(path: Path, error: Exception) -> None:
    """Check that an error is about damage, before it becomes a finding.

    Raises:
        StorageError: the disk failed, is full, or does not let the file be used: nothing is known
            of what is on it.
    """
    failure = storage_error(path, error)
    if failure is not None:
        raise failure from error


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Attributes:
        what: the file, or the part of the store.
        problem: what is wrong with it, in words.
        remedy: what helps.
        vector_ids: of the documents to encode again, or to remove.
    """

    what: str
    problem: str
    remedy: Remedy
    vector_ids: tuple[int, ...] = ()


def examine(data: Path, checkpoint: Checkpoint) -> tuple[Finding, ...]:
    """Examine a data directory with the checkpoint of its vectors.

    Raises:
        StorageError: a file cannot be read for another reason than damage.
        StoreError: there is no data directory.
    """
    if not (data / STORE_FILE).is_file():
        raise StoreError(f"{data}: there is no data directory here")
    return tuple(_examine(data, share_if_readable(data, checkpoint)))


def share_if_readable(data: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the reading share of a data directory, if the store can be read."""
    try:
        return with_share_of(data, checkpoint)
    except (EncoderError, StoreError):  # what is wrong is found by the examination
        return checkpoint


def _examine(data: Path, checkpoint: Checkpoint) -> Iterator[Finding]:
    yield from examine_checkpoint(checkpoint)
    space = vector_space(checkpoint)
    for kind in (CorpusFusion, CorpusCalibration):
        read = partial(kind.read, data, space.fingerprint)
        yield from _findings(kind.FILE, data / kind.FILE, read, Remedy.DELETE)
    yield from _examine_store(data, space)


def examine_checkpoint(checkpoint: Checkpoint) -> Iterator[Finding]:
    """Compare every file of a checkpoint with its manifest."""
    for name in checkpoint.files:
        read = partial(read_verified, checkpoint.directory, checkpoint.files, name)
        what, path = f"checkpoint {checkpoint.name}", checkpoint.directory / name
        yield from _findings(what, path, read, Remedy.REINSTALL)


def _findings(
    what: str, path: Path, check: Callable[[], object], remedy: Remedy
) -> Iterator[Finding]:
    """Yield what a check of a file says, as a text, or raises; nothing if nothing is wrong.

    Raises:
        StorageError: the file cannot be read for another reason than damage.
    """
    try:
        problem = check()
    except (*DATABASE_ERRORS, IndexingError, EncoderError, *_OF_DAMAGE) as error:
        require_damage(path, error)
        problem = str(error)
    if isinstance(problem, str):
        yield Finding(what, problem, remedy)


def _examine_store(data: Path, space: VectorSpace) -> Iterator[Finding]:
    path = data / STORE_FILE
    try:
        stored = read_space(path)
        found = list(_examine_truth(path))
        yield from found
        if not found:  # what follows from damaged rows is rebuilt with them
            for what, problem_of in _DERIVED.items():
                check = partial(_reading, path, problem_of)
                yield from _findings(what, path, check, Remedy.REBUILD)
        if stored.fingerprint != space.fingerprint:
            other, ours = stored.fingerprint[:12], space.fingerprint[:12]
            problem = f"its vectors are of checkpoint {other}, not {ours}"
            yield Finding(
                STORE_FILE, f"{problem}: name that one with --encoder, or", Remedy.RESTORE_BACKUP
            )
    except (*DATABASE_ERRORS, StoreError) as error:
        require_damage(path, error)
        unread = isinstance(error.__cause__ or error, DATABASE_ERRORS)
        damaged = "the database is damaged: " if unread else ""
        yield Finding(STORE_FILE, f"{damaged}{error}", Remedy.RESTORE_BACKUP)
    checks = dict.fromkeys(FOLLOWER_FILES, follower_problem)
    checks[f"{LEXICAL_DIRECTORY}/{WORDS_FILE}"] = partial(words_problem, data / LEXICAL_DIRECTORY)
    for name, problem_of in checks.items():
        if (data / name).exists():
            check = partial(_reading, data / name, problem_of)
            yield from _findings(name, data / name, check, Remedy.DELETE)


def _examine_truth(path: Path) -> Iterator[Finding]:
    """Let SQLite check the file, and compare every row that nothing else gives with its checksum.

    Damage of the file is repaired where every row can be read.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with closing(open_reader(path)) as connection:
        problems = file_problems(connection)
        orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
        connection.execute("BEGIN")  # one state for all that is compared
        damage = find_damage(connection)
    if problems:
        problem = f"the database is damaged: {'; '.join(problems)}"
        yield Finding(path.name, problem, Remedy.REBUILD)
    if orphans:
        tables = sorted({str(row[0]) for row in orphans})
        problem = f"{len(orphans)} rows of {', '.join(tables)} belong to no document"
        yield Finding(path.name, problem, Remedy.REBUILD)
    if damage.documents:
        problem = (
            f"{_counted(list(damage.documents.values()))} damaged in text, title, metadata or "
            "receipt: restore a backup, or"
        )
        yield Finding(path.name, problem, Remedy.REMOVE_DAMAGED, tuple(damage.documents))
    if damage.encodings:
        problem = f"{_counted(list(damage.encodings.values()))} damaged in vectors"
        yield Finding(path.name, problem, Remedy.ENCODE, tuple(damage.encodings))


def _counted(damaged: Sequence[str]) -> str:
    shown = ", ".join(damaged[:_PROBLEMS_SHOWN]) + ", …" * (len(damaged) > _PROBLEMS_SHOWN)
    many = len(damaged) > 1
    return f"{len(damaged)} document{'s' * many} ({shown}) {'are' if many else 'is'}"


def _reading(path: Path, check: Callable[[sqlite3.Connection], object]) -> object:
    """Return what a check says of a database, in one state of it."""
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")
        return check(connection)


_METADATA = """
SELECT vector_id, metadata FROM documents"""
_OTHER_VALUES = """
SELECT vector_id FROM (SELECT * FROM main.metadata_values EXCEPT SELECT * FROM temp.metadata_values)
UNION
SELECT vector_id FROM (SELECT * FROM temp.metadata_values EXCEPT SELECT * FROM main.metadata_values)
ORDER BY vector_id"""


def metadata_problem(connection: sqlite3.Connection) -> str | None:
    """Derive the table that filters read from the metadata of every document, and compare."""
    connection.execute(METADATA_SCHEMA.replace("CREATE TABLE", "CREATE TEMP TABLE"))
    derive_metadata(connection)  # into the temporary table, which has the name first
    wrong = connection.execute(_OTHER_VALUES).fetchall()
    if not wrong:
        return None
    return f"the values of {len(wrong)} documents do not match, vector id {wrong[0][0]} first"


def derive_metadata(connection: sqlite3.Connection) -> None:
    """Fill the empty table that filters read."""
    rows = connection.execute(_METADATA)
    insert_metadata(connection, ((number, json.loads(text)) for number, text in rows))


def space_problem(connection: sqlite3.Connection) -> str | None:
    """Read the alignment space; a store that was never given one has nothing to check."""
    number = find_space(connection)
    if number is not None:
        load_space(connection, number)
    return None


def follower_problem(connection: sqlite3.Connection) -> str | None:
    """Let SQLite check the file of a follower."""
    return "; ".join(file_problems(connection)) or None


def words_problem(folder: Path, connection: sqlite3.Connection) -> str | None:
    """Check the file of the words as that of another follower, and the segments in a folder."""
    problem = follower_problem(connection)
    if problem is None and read_state(connection).published:
        load_snapshot(folder, read_manifest(connection))
    return problem


_DERIVED = {"metadata values": metadata_problem, "alignment": space_problem}


def repair(
    data: Path,
    checkpoint: Checkpoint,
    findings: Sequence[Finding],
    precision: str | None,
    progress: Progress,
) -> None:
    """Apply the remedies of the repairable findings; `examine` again afterwards.

    Raises:
        DataDirectoryInUseError: a server has the directory open and must be stopped first.
        EncoderError: the checkpoint cannot encode.
        SnapshotError: the index could not be published.
        StoreError: something cannot be written.
    """
    with locked(data):
        broken = any(f.what == STORE_FILE and not f.remedy.repairable for f in findings)
        checkpoint = share_if_readable(data, checkpoint)
        gone = {finding.what for finding in findings if finding.remedy is Remedy.DELETE}
        of_store = [f for f in findings if f.remedy in _IN_THE_STORE and not broken]
        if of_store:
            gone |= {SNAPSHOT_FILE, LEXICAL_DIRECTORY, *FOLLOWER_FILES}
        try:
            for name, ending in product(gone, FILE_ENDINGS):
                delete(data / f"{name}{ending}")
            if of_store:
                file = SQLiteConnections(data / STORE_FILE, read_only=False, kind=STORE)
                with closing(file) as store:
                    lost = _named_by(of_store, Remedy.REMOVE_DAMAGED)
                    rows = store.read_rows(_DAMAGED, vector_id_list(lost))
                    _set_aside(data / DAMAGED_FILE, rows)
                    _mend(store, lost)
                    again = _named_by(of_store, Remedy.ENCODE)
                    _encode_again(store, checkpoint, again, precision, progress)
        except OSError as error:
            failure = storage_error(data / STORE_FILE, error)
            raise failure or StoreError(f"{data}: cannot be written: {error}") from error
        if broken:
            return
    space = vector_space(checkpoint)
    with closing(
        open_data_directory(
            data,
            fingerprint=space.fingerprint,
            dimension=space.dimension,
            alignment=open_space(checkpoint),
        )
    ) as directory:
        finish(directory, progress)


def _named_by(findings: Sequence[Finding], remedy: Remedy) -> list[int]:
    """Return the vector ids that the findings of a remedy name, ascending."""
    return sorted(
        number for finding in findings if finding.remedy is remedy for number in finding.vector_ids
    )


def _mend(store: SQLiteConnections, lost: Sequence[int]) -> None:
    """Let SQLite write its file and indexes again, remove documents, and derive tables again."""
    store.vacuum()
    with store.writing() as connection:
        connection.execute("REINDEX")
        for table in ("vectors", "block_vectors", "revisions"):
            connection.execute(f"DELETE FROM {table} WHERE {_WITHOUT_DOCUMENT}")  # noqa: S608
        remove_documents(connection, lost, advance_sequence(connection))
        connection.execute("DELETE FROM metadata_values")
        derive_metadata(connection)
        try:
            space_problem(connection)
        except ValueError:
            connection.execute("DELETE FROM alignment_spaces")


def _encode_again(
    store: SQLiteConnections,
    checkpoint: Checkpoint,
    vector_ids: Sequence[int],
    precision: str | None,
    progress: Progress,
) -> None:
    """Replace vectors and block vectors of documents, whose texts are sound."""
    if not vector_ids:
        return
    encoder = open_encoder(checkpoint, precision=precision)
    progress.started("encoding again", len(vector_ids))
    for start in range(0, len(vector_ids), _ENCODED_A_TRANSACTION):
        some = vector_ids[start : start + _ENCODED_A_TRANSACTION]
        with store.writing() as connection:
            rows = connection.execute(_TEXTS, (vector_id_list(some),)).fetchall()
            documents = [Document(str(number), text) for number, text in rows]
            sequence = advance_sequence(connection)
            for entry in encode_documents(documents, encoder, progress):
                number = int(entry.document.id)
                for table in ("vectors", "block_vectors"):
                    connection.execute(f"DELETE FROM {table} WHERE vector_id = ?", (number,))  # noqa: S608
                insert_encoding(connection, number, sequence, entry.vector, entry.blocks)


def _set_aside(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Append documents to a file of JSON Lines, durably.

    A text that has changed cannot be made again from anything else. Bytes that are no text any more
    become U+FFFD; metadata that is no JSON stays a text.

    Raises:
        OSError: the file cannot be written.
    """
    if not rows:
        return
    with path.open("a", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(_fields(row))}\n" for row in rows)
        lines.flush()
        os.fsync(lines.fileno())


def _fields(row: Sequence[Any]) -> dict[str, Any]:
    document_id, title, text, metadata = row
    try:
        metadata = json.loads(metadata)
    except (TypeError, ValueError, RecursionError):
        metadata = str(metadata)
    return {"id": str(document_id), "title": str(title), "text": str(text), "metadata": metadata}
