"""Snapshots: published, immutable generations of the index on disk.

    snapshots/
      0000000007/index.bin, manifest.json
      0000000008/...
      CURRENT                 the name of one generation and the SHA-256 of its manifest

CURRENT has the checksum of the manifest and the manifest that of the index, so any changed byte is
found. A snapshot is a copy: if it cannot be read, the index is rebuilt from the document store.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from encoder.atomic_files import replace_durably, sync
from index.errors import SnapshotError
from index.vectors.faiss.faiss_index import FaissIndex, load_faiss_index
from index.vectors.vector_index import Precision

FORMAT = 1
GENERATIONS_KEPT = 2  # a reader may be reading the one before the newest
CURRENT = "CURRENT"
INDEX_FILE = "index.bin"
SNAPSHOT_MANIFEST = "manifest.json"

_GENERATION = re.compile(r"[0-9]{10}")
_UNFINISHED = ".publishing-"


@dataclass(frozen=True, slots=True)
class SavedIndex:
    """What is in an index file: the store's changes up to `sequence`, as `vectors` in `nlist`.

    `backend` names the precision that vectors are held in, see `backend_of`.
    The lists were trained for the `trained_vectors` that the store held at `trained_sequence`, and
    queries visit `nprobe` of them.
    """

    backend: str
    sequence: int
    nlist: int
    vectors: int
    trained_sequence: int
    trained_vectors: int
    nprobe: int


@dataclass(frozen=True, slots=True)
class Manifest(SavedIndex):
    """What a generation holds; `sha256` and `size` (bytes) are of its index file."""

    format: int
    generation: int
    fingerprint: str
    dimension: int
    sha256: str
    size: int
    created: str


def publish_snapshot(
    root: Path, save: Callable[[Path], SavedIndex], *, fingerprint: str, dimension: int
) -> Manifest:
    """Publish a new generation, durable and current at return; a kill leaves the old one current.

    Args:
        root: the directory of all snapshots, created when it is missing.
        save: writes the index to the given path and describes it.
        fingerprint: of the checkpoint that made the vectors.
        dimension: of the vectors.

    Raises:
        SnapshotError: something could not be written; the old generation stays current.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        generation = max((int(path.name) for path in _generations(root)), default=0) + 1
        unfinished = root / f"{_UNFINISHED}{generation:010}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        manifest = Manifest(
            **asdict(save(unfinished / INDEX_FILE)),
            format=FORMAT,
            generation=generation,
            fingerprint=fingerprint,
            dimension=dimension,
            sha256=_sha256(unfinished / INDEX_FILE),
            size=(unfinished / INDEX_FILE).stat().st_size,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        text = json.dumps(asdict(manifest), indent=2) + "\n"
        (unfinished / SNAPSHOT_MANIFEST).write_text(text, encoding="utf-8")
        _make_current(root, unfinished, generation)
    except (OSError, RuntimeError) as error:
        _remove_leftovers(root)
        raise SnapshotError(f"{root}: no snapshot could be published: {error}") from error
    _remove_leftovers(root)
    return manifest


def verify_current_snapshot(root: Path) -> Manifest:
    """Check the current generation's files against their checksums, without loading the index.

    Raises:
        SnapshotError: there is none, a file of it is missing or changed, or it has another format.
    """
    name, manifest_sha256 = _read_current(root)
    manifest_path = root / name / SNAPSHOT_MANIFEST
    try:
        data = manifest_path.read_bytes()
        index_sha256 = _sha256(root / name / INDEX_FILE)
    except OSError as error:
        raise SnapshotError(f"{root / name}: cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != manifest_sha256:
        raise SnapshotError(f"{manifest_path}: the file has changed since it was published")
    manifest = _parse_manifest(manifest_path, data)
    if index_sha256 != manifest.sha256:
        raise SnapshotError(f"{root / name / INDEX_FILE}: the file has changed since it was made")
    return manifest


def current_generation(root: Path) -> str:
    """Return the name of the current generation's directory.

    Raises:
        SnapshotError: there is none.
    """
    return _read_current(root)[0]


def backend_of(precision: Precision) -> str:
    """Return what a manifest says of an index that holds vectors in this precision."""
    return f"faiss-{precision}"


def current_precision(root: Path) -> Precision | None:
    """Return the precision of the current generation; None where that cannot be read."""
    try:
        path = root / current_generation(root) / SNAPSHOT_MANIFEST
        backend = _parse_manifest(path, path.read_bytes()).backend
        return next(
            (precision for precision in get_args(Precision) if backend_of(precision) == backend),
            None,
        )
    except (OSError, SnapshotError):
        return None


def oldest_sequence(root: Path) -> int:
    """Return the lowest sequence of the generations on the disk; 0 where none can be read."""
    sequences = []
    for generation in _generations(root):
        path = generation / SNAPSHOT_MANIFEST
        with suppress(OSError, SnapshotError):  # then it cannot be loaded either
            sequences.append(_parse_manifest(path, path.read_bytes()).sequence)
    return min(sequences, default=0)


def read_current_snapshot(
    root: Path, precision: Precision, *, fingerprint: str, dimension: int
) -> tuple[Manifest, FaissIndex]:
    """Verify the current generation and load its index.

    Raises:
        SnapshotError: as `verify_current_snapshot`, or it is of another checkpoint or
            precision.
    """
    manifest = verify_current_snapshot(root)
    path = root / f"{manifest.generation:010}" / INDEX_FILE
    if manifest.fingerprint != fingerprint:
        raise SnapshotError(f"{path}: made with another checkpoint, {manifest.fingerprint[:12]}")
    if manifest.backend != backend_of(precision):
        raise SnapshotError(
            f"{path}: written by {manifest.backend!r}, not by {backend_of(precision)!r}"
        )
    index = load_faiss_index(path, precision)
    expected = (dimension, manifest.nlist, manifest.vectors)
    if (index.dimension, index.nlist, len(index)) != expected:
        raise SnapshotError(f"{path}: does not match its manifest")
    return manifest, index


def _make_current(root: Path, unfinished: Path, generation: int) -> None:
    manifest_sha256 = _sha256(unfinished / SNAPSHOT_MANIFEST)
    sync(unfinished / INDEX_FILE)
    sync(unfinished / SNAPSHOT_MANIFEST)
    replace_durably(unfinished, root / f"{generation:010}")
    pointer = root / f"{_UNFINISHED}{CURRENT}"
    pointer.write_text(f"{generation:010} {manifest_sha256}\n", encoding="ascii")
    replace_durably(pointer, root / CURRENT)


def _remove_leftovers(root: Path) -> None:
    """Remove what interrupted publishes left, and all but the newest generations."""
    try:
        current, _ = _read_current(root)
    except SnapshotError:
        current = ""  # then no generation is current
    generations = _generations(root)
    kept = [path for path in generations if path.name <= current][-GENERATIONS_KEPT:]
    for path in [*root.glob(f"{_UNFINISHED}*"), *generations]:
        if path in kept:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def _generations(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*") if _GENERATION.fullmatch(path.name))


def _read_current(root: Path) -> tuple[str, str]:
    path = root / CURRENT
    try:
        match = re.fullmatch(r"([0-9]{10}) ([0-9a-f]{64})\n", path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error
    if match is None:
        raise SnapshotError(f"{path}: does not name a generation")
    return match[1], match[2]


def _parse_manifest(path: Path, data: bytes) -> Manifest:
    try:
        fields = json.loads(data)
        if fields["format"] != FORMAT:
            raise SnapshotError(
                f"{path}: has format {fields['format']}; "
                f"this version of Longmatch reads format {FORMAT}"
            )
        manifest = Manifest(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise SnapshotError(f"{path}: is not a manifest: {error}") from error
    if f"{manifest.generation:010}" != path.parent.name:
        raise SnapshotError(f"{path}: belongs to generation {manifest.generation}")
    return manifest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
