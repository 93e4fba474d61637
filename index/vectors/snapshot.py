"""Snapshots: published, immutable generations of the index on disk.

    snapshots/
      0000000007.index, 0000000008.index
      CURRENT                 the SHA-256 of its second line: what the current generation is

CURRENT has the checksum of the index, too, so any changed byte is found. A snapshot is a copy: if
it cannot be read, the index is rebuilt from the document store.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from encoder.atomic_files import replace_durably, write_atomically
from index.errors import SnapshotError
from index.vectors.faiss.faiss_index import FaissIndex, load_faiss_index
from index.vectors.vector_index import Precision

GENERATIONS_KEPT = 2  # a reader may be reading the one before the newest
CURRENT = "CURRENT"
_INDEX = "[0-9]" * 10 + ".index"
_UNFINISHED = ".publishing"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a generation holds: the store's changes up to `sequence`.

    The lists were trained for the `trained_vectors` that the store held at `trained_sequence`, and
    queries visit `nprobe` of them. `space` is the number of the space of the store that whitens the
    vectors, 0 for none. `fingerprint` is of the checkpoint that made the vectors, `identity` of the
    store, and `sha256` of the index file.
    """

    fingerprint: str
    identity: str
    precision: Precision
    trained_sequence: int
    trained_vectors: int
    nprobe: int
    space: int
    generation: int = 0
    sequence: int = 0
    sha256: str = ""


def index_file(root: Path, generation: int) -> Path:
    """Return the path of the index of a generation."""
    return root / f"{generation:010}.index"


def publish_snapshot(root: Path, save: Callable[[Path], int], about: Manifest) -> Manifest:
    """Publish a new generation, durable and current at return; a kill leaves the old one current.

    Args:
        root: the directory of all snapshots, created when it is missing.
        save: writes the index to the given path and returns the sequence that it holds.
        about: the index; its number, sequence and checksum are found here.

    Raises:
        SnapshotError: something could not be written; the old generation stays current.
    """
    unfinished, index = root / _UNFINISHED, None
    try:
        root.mkdir(parents=True, exist_ok=True)
        unfinished.unlink(missing_ok=True)  # of a publish that was killed
        numbers = [int(path.stem) for path in root.glob(_INDEX)]
        with suppress(SnapshotError):  # its index may have been deleted
            numbers.append(read_manifest(root).generation)
        generation = max(numbers, default=0) + 1
        sequence = save(unfinished)
        manifest = replace(
            about, generation=generation, sequence=sequence, sha256=_sha256(unfinished)
        )
        index = index_file(root, generation)
        replace_durably(unfinished, index)
        content = json.dumps(asdict(manifest))
        digest = hashlib.sha256(content.encode()).hexdigest()
        write_atomically(root / CURRENT, f"{digest}\n{content}")
        for path in sorted(root.glob(_INDEX))[:-GENERATIONS_KEPT]:
            path.unlink()
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            (index or unfinished).unlink()
        raise SnapshotError(f"{root}: no snapshot could be published: {error}") from error
    return manifest


def read_manifest(root: Path) -> Manifest:
    """Return what the current generation holds, without reading its index.

    Raises:
        SnapshotError: there is none, or it is damaged.
    """
    path = root / CURRENT
    try:
        digest, _, content = path.read_text(encoding="ascii").partition("\n")
        if hashlib.sha256(content.encode()).hexdigest() != digest:
            raise SnapshotError(f"{path}: the file has changed since it was published")
        return Manifest(**json.loads(content))
    except (OSError, TypeError, ValueError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error


def current_precision(root: Path) -> Precision | None:
    """Return the precision of the current generation; None where that cannot be read."""
    try:
        return read_manifest(root).precision
    except SnapshotError:
        return None


def read_current_snapshot(
    root: Path, precision: Precision, fingerprint: str
) -> tuple[Manifest, FaissIndex]:
    """Verify the current generation and load its index.

    Raises:
        SnapshotError: as of `read_manifest`, a changed index, or one of another checkpoint or
            precision.
    """
    manifest = read_manifest(root)
    path = index_file(root, manifest.generation)
    if manifest.fingerprint != fingerprint:
        raise SnapshotError(f"{path}: made with another checkpoint, {manifest.fingerprint[:12]}")
    if manifest.precision != precision:
        raise SnapshotError(f"{path}: holds vectors in {manifest.precision}, not in {precision}")
    try:
        if _sha256(path) != manifest.sha256:
            raise SnapshotError(f"{path}: the file has changed since it was published")
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error
    return manifest, load_faiss_index(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
