"""A backup as one tar file, not compressed: `manifest.json` first, then the files it names."""

import hashlib
import json
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from encoder.checkpoint import file_digest
from index.errors import BackupError

FORMAT = 1
MANIFEST_FILE = "manifest.json"
_OWN = stat.S_IRUSR | stat.S_IWUSR


@dataclass(frozen=True, slots=True)
class BackupFile:
    """Size in bytes and SHA-256, in hex, of one file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup holds.

    Attributes:
        created: ISO 8601 in UTC.
        checkpoint: name of the checkpoint, for display; empty if it is not known.
        base: fingerprint of that checkpoint.
        fingerprint: of the vectors; differs from `base` where there is a corpus adapter.
        dimension: of the vectors.
        sequence: of the store: the backup holds the changes up to this one.
        documents: their number, without those of its collections.
        files: by name relative to the backup, with "/".
    """

    created: str
    checkpoint: str
    base: str
    fingerprint: str
    dimension: int
    sequence: int
    documents: int
    files: Mapping[str, BackupFile]

    @property
    def collections(self) -> list[str]:
        """Names of the collections besides the data directory itself, in order."""
        parts = (PurePosixPath(name).parts for name in self.files)
        return sorted({part[1] for part in parts if part[0] == "collections"})


def describe_files(folder: Path) -> dict[str, BackupFile]:
    """Return every file in a folder except the manifest, by its name relative to the folder.

    Raises:
        OSError: one cannot be read.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST_FILE:
            found[name] = BackupFile(path.stat().st_size, file_digest(path))
    return found


def format_manifest(manifest: BackupManifest) -> bytes:
    """Return the content of the manifest file, which includes a digest of itself."""
    content = {"format": FORMAT, **asdict(manifest)}
    content["sha256"] = _digest(content)
    return (json.dumps(content, indent=2) + "\n").encode()


def parse_manifest(data: bytes, where: str) -> BackupManifest:
    """Parse the output of `format_manifest`.

    Raises:
        BackupError: it is damaged, of another format or not a manifest; `where` names it.
    """
    try:
        content: dict[str, Any] = json.loads(data)
        if content["format"] != FORMAT:
            raise BackupError(
                f"{where}: has format {content['format']!r}; this version of Longmatch reads "
                f"format {FORMAT}"
            )
        if content.pop("sha256") != _digest(content):
            raise BackupError(f"{where}: was changed or is damaged")
        del content["format"]
        files = {str(name): BackupFile(**one) for name, one in content.pop("files").items()}
        manifest = BackupManifest(files=files, **content)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BackupError(f"{where}: is not the manifest of a backup: {error!r}") from error
    for name in manifest.files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BackupError(f"{where}: names a file outside the backup, {name!r}")
    return manifest


def read_manifest(folder: Path) -> BackupManifest:
    """Read the manifest of a backup that is a folder.

    Raises:
        BackupError: it is missing, damaged or of another format.
    """
    path = folder / MANIFEST_FILE
    try:
        return parse_manifest(path.read_bytes(), str(path))
    except OSError as error:
        raise BackupError(f"{folder}: is not a complete backup: {error}") from error


def verify_files(folder: Path, manifest: BackupManifest) -> None:
    """Compare every file of a folder with the manifest.

    Raises:
        BackupError: one is missing or changed; the message names it.
    """
    for name, expected in manifest.files.items():
        path = folder / name
        try:
            found = BackupFile(path.stat().st_size, file_digest(path))
        except OSError as error:
            raise BackupError(f"{path}: cannot be read: {error}") from error
        if found != expected:
            raise BackupError(f"{path}: is damaged: it differs from {MANIFEST_FILE}")


def _digest(content: Mapping[str, Any]) -> str:
    canonical = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()


_LARGEST_MANIFEST = 16 * 2**20
_BUFFER = 2**20


def pack(folder: Path, manifest: BackupManifest, path: Path) -> None:
    """Pack a backup folder into one file and verify the file.

    Raises:
        BackupError: the file does not hold what was written.
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
    with _open_archive(path) as archive:
        manifest = _manifest(path, archive)
        for name, expected in manifest.files.items():
            with _member(path, archive, name) as file:
                found = BackupFile(archive.getmember(name).size, _sha256(file))
            if found != expected:
                raise BackupError(f"{path}: {name} is damaged: it differs from {MANIFEST_FILE}")
    return manifest


def read_archived_manifest(path: Path) -> BackupManifest:
    """Read the manifest of an archive.

    Raises:
        BackupError: it is missing or damaged, or the file is not an archive.
    """
    with _open_archive(path) as archive:
        return _manifest(path, archive)


def unpack(path: Path, manifest: BackupManifest, folder: Path) -> None:
    """Extract the files that the manifest of an archive names into a folder, and no others.

    Raises:
        BackupError: one is missing.
        OSError: one cannot be written.
    """
    with _open_archive(path) as archive:
        for name in manifest.files:
            with _member(path, archive, name) as file:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                create_file(folder / name, archive.getmember(name).mode)
                with (folder / name).open("wb") as copy:
                    shutil.copyfileobj(file, copy, _BUFFER)


def create_file(path: Path, mode: int) -> None:
    """Create an empty file that no more may read than its source, before anything is in it.

    Raises:
        OSError: it cannot be created, or exists.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(mode) | _OWN))


def _manifest(path: Path, archive: tarfile.TarFile) -> BackupManifest:
    with _member(path, archive, MANIFEST_FILE) as file:
        return parse_manifest(file.read(_LARGEST_MANIFEST), f"{path}: {MANIFEST_FILE}")


@contextmanager
def _open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise BackupError(f"{path}: is not a complete backup: {error}") from error


def _member(path: Path, archive: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:  # missing, or not a regular file
        raise BackupError(f"{path}: is not a complete backup: {name} is missing")
    return file


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_BUFFER):
        digest.update(chunk)
    return digest.hexdigest()
