"""The snapshot: the index in a file, which a start reads in place of all vectors of the store.

    vectors.faiss   SHA-256 of all that follows; the index, as FAISS writes it; its manifest

The file is replaced as a whole, and who reads the former one meanwhile has it open. Any changed
byte is found. It is a copy: if it cannot be read, the index is rebuilt from the document store.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from encoder.atomic_files import replace_durably
from index.errors import SnapshotError
from index.vectors.faiss.faiss_index import FaissIndex, load_faiss_index
from index.vectors.vector_index import Precision

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a generation of the index is.

    Attributes:
        identity: of the store.
        precision: that its vectors are held in.
        trained_sequence: of the store when its lists were trained.
        trained_vectors: that the store held then.
        nprobe: how many lists a query visits.
        space: number of the space of the store that whitens vectors; 0 for none.
        generation: of the snapshot last published or loaded; 0 for none.
        sequence: of the store that the snapshot holds.
    """

    identity: str
    precision: Precision
    trained_sequence: int = 0
    trained_vectors: int = 0
    nprobe: int = 1
    space: int = 0
    generation: int = 0
    sequence: int = 0


def publish_snapshot(path: Path, save: Callable[[BinaryIO], int], about: Manifest) -> Manifest:
    """Publish the next generation, durable at return; a kill leaves the file as it was.

    Args:
        path: of the file.
        save: writes the index and returns the sequence that it holds.
        about: the index, and the generation before.

    Raises:
        SnapshotError: it could not be written; the file stays as it was.
    """
    unfinished = path.with_name(f"{path.name}.partial")
    try:
        with unfinished.open("w+b") as file:
            file.write(bytes(_DIGEST_BYTES))
            manifest = replace(about, sequence=save(file), generation=about.generation + 1)
            file.write(json.dumps(asdict(manifest)).encode())
            file.seek(_DIGEST_BYTES)
            digest = hashlib.file_digest(file, "sha256").digest()
            file.seek(0)
            file.write(digest)
        replace_durably(unfinished, path)
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            unfinished.unlink()
        raise SnapshotError(f"{path}: no snapshot could be published: {error}") from error
    return manifest


def load_snapshot(path: Path) -> tuple[Manifest, FaissIndex]:
    """Verify a snapshot and load its index.

    Raises:
        SnapshotError: there is none, or it is damaged.
    """
    try:
        with path.open("rb") as file:
            digest = file.read(_DIGEST_BYTES)
            if hashlib.file_digest(file, "sha256").digest() != digest:
                raise SnapshotError(f"{path}: the file has changed since it was published")
            file.seek(_DIGEST_BYTES)
            index = load_faiss_index(file)
            return Manifest(**json.loads(file.read())), index
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from error
