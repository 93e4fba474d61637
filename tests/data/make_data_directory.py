"""Writes a small data directory, as this release writes it, for later releases to open.

    python tests/data/make_data_directory.py tests/data/format-5

Run once for each format of the store, with the release that writes it, and committed. Beside it
lies `answers.json`: what that release answered. The vectors are drawn at random.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.sqlite.block_vectors import BlockVectors
from index.store.records import EncodedDocument

FINGERPRINT, DIMENSION = "a" * 64, 16
DOCUMENTS, QUERIES = 24, 6
WORDS = ("violin orchestra sonata", "granite basalt lava", "harbour sailor anchor")


def unit(count: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def entries(numbers: Sequence[int], vectors: np.ndarray, more: str = "") -> list[EncodedDocument]:
    return [
        EncodedDocument(
            Document(f"d{n}", f"{WORDS[n % 3]} of {n}{more}", f"Title {n}", {"number": n}),
            vectors[n],
            Receipt(5, 5, 1, 0),
            BlockVectors(np.array([[0, 9]]), unit(1, n)),
        )
        for n in numbers
    ]


def open_directory(path: Path) -> DataDirectory:
    return open_data_directory(path, fingerprint=FINGERPRINT, dimension=DIMENSION)


def fill(directory: DataDirectory) -> None:
    """Documents in the snapshot, and changes after it, for the replay."""
    vectors = unit(DOCUMENTS, 1)
    directory.store.put(entries(range(DOCUMENTS), vectors))
    directory.index.catch_up()
    directory.index.publish()
    directory.store.put(entries([3, 4], unit(DOCUMENTS, 2), " changed"))
    directory.store.delete(["d7"])
    directory.index.catch_up()


def answers(directory: DataDirectory) -> dict[str, object]:
    """What is asked of a release, as JSON."""
    store = directory.store
    found = directory.index.search(unit(QUERIES, 3), 5)
    shown = store.get(found.ids.ravel().tolist())
    words = [store.lexical.search(store.lexical.read(text), 5) for text in WORDS]
    documents = store.find([f"d{n}" for n in range(DOCUMENTS)])
    return {
        "semantic": [[shown[one].id for one in row] for row in found.ids.tolist()],
        "scores": np.round(found.scores, 5).tolist(),
        "lexical": [[shown_id(directory, one) for one in m.vector_ids.tolist()] for m in words],
        "documents": {
            key: [one.document.title, one.document.text, one.document.metadata, one.receipt.tokens]
            for key, one in sorted(documents.items())
        },
        "blocks": len(store.block_vectors(list(range(1, 40)))),
    }


def shown_id(directory: DataDirectory, vector_id: int) -> str:
    return directory.store.get([vector_id])[vector_id].id


if __name__ == "__main__":
    target = Path(sys.argv[1])
    with closing(open_directory(target)) as made:
        fill(made)
        given = answers(made)
    (target / "lock").unlink(missing_ok=True)
    (target / "answers.json").write_text(json.dumps(given, indent=1) + "\n")
