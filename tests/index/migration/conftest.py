"""A data directory of documents of every kind, and the schema in a PostgreSQL that it may go to."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from encoder.alignment.space import neutral_space
from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.postgres.address import PostgreSQLAddress, parse_postgresql_url
from index.progress import SilentProgress
from index.sqlite.block_vectors import BlockVectors
from index.store.filters import Bound, Range
from index.store.records import EncodedDocument
from tests.tools.index_fixtures import DIMENSION, FINGERPRINT, unit_vectors
from tests.tools.postgresql import PostgreSQLServer

WIDTH = 16
WORDS = ("heron", "egret", "marsh", "court", "appeal", "motor", "bolt", "violin", "basalt", "queen")
SILENT = SilentProgress()


@pytest.fixture
def address(postgresql_server: PostgreSQLServer) -> PostgreSQLAddress:
    return parse_postgresql_url(postgresql_server.url, f"m{uuid4().hex}")


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[DataDirectory]:
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, **options}
    with closing(open_data_directory(path, **about)) as directory:
        yield directory


def text_of(number: int) -> str:
    chance = np.random.default_rng(number)
    return " ".join(chance.choice(WORDS, 12)) + f" word{number} \x00 😀"


def entry_of(number: int) -> EncodedDocument:
    blocks = BlockVectors(
        np.array([[0, 4], [4, 9], [9, 20]]), unit_vectors(3, seed=number, dimension=WIDTH)
    )
    document = Document(
        f"d{number}/ü",
        text_of(number),
        "" if number % 3 else f"A title of {WORDS[number % 10]} \x00 {number}",
        {"year": 1990 + number % 30, "n": [number, None, {"x": "\x00é"}]},
    )
    vector = unit_vectors(1, seed=10_000 + number)[0]
    return EncodedDocument(
        document, vector, Receipt(number + 1, number, 3, 1, 2), blocks if number % 7 else None
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A closed data directory of several sequences, with gaps, copies and an alignment space."""
    path = tmp_path / "data"
    with opened(path, alignment=neutral_space(WIDTH)) as directory:
        store = directory.store
        for start in range(0, 420, 140):
            store.put([entry_of(number) for number in range(start, start + 140)])
        store.delete([f"d{number}/ü" for number in range(0, 420, 9)])
        twin = entry_of(1)
        copy = Document("copy of d1", twin.document.text, "A copy")
        store.put([EncodedDocument(copy, twin.vector, twin.receipt, twin.blocks)])
        store.delete(["d419/ü"])
        store.put([entry_of(419)])
        store.delete(["d419/ü"])  # the last vector id that was given is gone
        store.refresh_titles(SILENT)
        store.alignment.refresh(SILENT, fit=True)
        directory.index.catch_up()
        directory.index.publish()
        store.lexical.publish()
    (path / "fusion.json").write_text('{"of": "the vectors"}')
    return path


def state(path: Path) -> list[Any]:
    with opened(path) as directory:
        store = directory.store
        ids = store.changes_since(0).added
        summaries = store.get(ids.tolist())
        return [
            *(ids.tolist(), summaries, store.find([one.id for one in summaries.values()])),
            *(store.vectors(ids)[1].tolist(), store.sequence, store.log.last_vector_id),
            {n: b.vectors.tolist() for n, b in store.block_vectors(ids.tolist()).items()},
            store.select(Range("/year", Bound(1995, True))).ids.tolist(),
            store.families.totals(),
        ]
