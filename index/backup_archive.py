"""A backup as one tar file, not compressed: `manifest.json` first, then the files it names."""

import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from index.backup_manifest import MANIFEST_FILE, BackupFile, BackupManifest, parse_manifest
from index.errors import BackupError

_LARGEST_MANIFEST = 16 * 2**20
_BUFFER = 2**20


def pack(folder: Path, manifest: BackupManifest, path: Path) -> None:
    """Write a backup that is a folder to one file, and read that back.

    Raises:
        BackupError: what was read is not what was written.
        OSError: it cannot be written.
    """
    with tarfile.open(path, "w") as archive:
        for name in (MANIFEST_FILE, *manifest.files):
            archive.add(folder / name, name)
    verify_archive(path)


def verify_archive(path: Path) -> BackupManifest:
    """Read an archive whole and compare it with its manifest.

    Raises:
        BackupError: it is incomplete or damaged.
    """
    with _opened(path) as archive:
        manifest = _manifest(path, archive)
        for name, expected in manifest.files.items():
            with _member(path, archive, name) as file:
                found = BackupFile(
                    archive.getmember(name).size,
                    hashlib.file_digest(file, "sha256").hexdigest(),  # type: ignore[arg-type]
                )
            if found != expected:
                raise BackupError(f"{path}: {name} is damaged: it is not what {MANIFEST_FILE} says")
    return manifest


def read_archived_manifest(path: Path) -> BackupManifest:
    """Read the manifest of an archive.

    Raises:
        BackupError: it is missing or damaged, or the file is no archive.
    """
    with _opened(path) as archive:
        return _manifest(path, archive)


def unpack(path: Path, manifest: BackupManifest, folder: Path) -> None:
    """Write the files of an archive that its manifest names into a folder; nothing else.

    Raises:
        BackupError: one is missing.
        OSError: one cannot be written.
    """
    with _opened(path) as archive:
        for name in manifest.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with _member(path, archive, name) as file, (folder / name).open("xb") as copy:
                shutil.copyfileobj(file, copy, _BUFFER)


def _manifest(path: Path, archive: tarfile.TarFile) -> BackupManifest:
    with _member(path, archive, MANIFEST_FILE) as file:
        return parse_manifest(file.read(_LARGEST_MANIFEST), f"{path}: {MANIFEST_FILE}")


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise BackupError(f"{path}: is not a whole backup: {error}") from error


def _member(path: Path, archive: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:  # it is missing, or no regular file
        raise BackupError(f"{path}: is not a whole backup: {name} is missing")
    return file
