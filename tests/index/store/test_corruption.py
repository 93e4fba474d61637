"""R10: one byte flipped anywhere in a data directory or a checkpoint.

It is detected, or harmless, or the doctor finds it, or deleting the file of a follower cures it:
never a crash.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from encoder.blocks import Receipt
from encoder.checkpoint import (
    DEFAULT_CHECKPOINT,
    Checkpoint,
    load_checkpoint,
    read_verified,
    vector_space,
)
from encoder.errors import EncoderError
from index.directory.data_directory import FOLLOWER_FILES, DataDirectory, open_data_directory
from index.doctor import examine, examine_checkpoint, repair
from index.document import Document
from index.errors import IndexingError
from index.lexical.tables import WORDS_FILE
from index.progress import SilentProgress
from index.sqlite.block_vectors import BlockVectors
from index.store.records import EncodedDocument
from tests.index.conftest import sql
from tests.kit.index_fixtures import unit_vectors
from tests.kit.tiers import Tier

DOCUMENTS = 60
FOLLOWERS = (WORDS_FILE, *FOLLOWER_FILES)
WORDS = ["river", "stone", "music", "winter", "letter", "engine", "forest", "sonata", "granite"]


@dataclass(frozen=True)
class Answers:
    semantic: object
    lexical: object
    shown: object
    explained: object


def text_of(number: int) -> str:
    random = np.random.default_rng(number)
    return " ".join(random.choice(WORDS, 60)) + f" only{number}."


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint(DEFAULT_CHECKPOINT)


@contextmanager
def opened(data: Path, checkpoint: Checkpoint) -> Iterator[DataDirectory]:
    space = vector_space(checkpoint)
    with closing(
        open_data_directory(data, fingerprint=space.fingerprint, dimension=space.dimension)
    ) as directory:
        yield directory


@pytest.fixture(scope="module")
def data(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed data directory with all kinds of files; changed documents, removed ones."""
    path = tmp_path_factory.mktemp("whole") / "data"
    path.mkdir()
    with opened(path, checkpoint) as directory:
        store = directory.store
        vectors = unit_vectors(2 * DOCUMENTS, seed=1, dimension=store.dimension)
        for start in range(0, DOCUMENTS, 20):
            store.put([entry(n, vectors[n]) for n in range(start, start + 20)])
        directory.index.catch_up()
        directory.index.publish()
        store.put([entry(n, vectors[n + DOCUMENTS], " changed") for n in range(5)])
        store.delete([f"d{n}" for n in range(10, 14)])
        directory.index.catch_up()
    return path


def entry(number: int, vector: np.ndarray, more: str = "") -> EncodedDocument:
    blocks = BlockVectors(
        np.array([[0, 50], [50, 99]]), unit_vectors(2, seed=number, dimension=384)
    )
    document = Document(f"d{number}", text_of(number) + more, f"Title {number}", {"n": number})
    return EncodedDocument(document, vector, Receipt(40, 40, 2, 0, 40), blocks)


def answers(directory: DataDirectory) -> Answers:
    """Everything that a service answers from, for queries of every kind."""
    store = directory.store
    found = directory.index.search(unit_vectors(12, seed=1, dimension=store.dimension), 8)
    ids = sorted(set(found.ids.ravel().tolist()))
    documents = store.find([f"d{n}" for n in range(DOCUMENTS)])
    lexical = [store.lexical.read(text_of(n)) for n in range(6)]
    return Answers(
        (found.ids.tolist(), found.scores.tolist()),
        [
            (found.vector_ids.tolist(), found.scores.tolist())
            for found in (store.lexical.search(query, 8) for query in lexical)
        ],
        (store.get(ids), documents),
        {
            key: (b.offsets.tolist(), b.vectors.tolist())
            for key, b in store.block_vectors(ids).items()
        },
    )


def flip(path: Path, random: np.random.Generator) -> str:
    content = bytearray(path.read_bytes())
    place, bit = int(random.integers(len(content))), int(random.integers(8))
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} of {path.name}"


def outcome(data: Path, checkpoint: Checkpoint, expected: Answers) -> str:
    """Open and ask, as a service does; say "detected", "same" or "wrong"."""
    try:
        with opened(data, checkpoint) as directory:
            return "same" if answers(directory) == expected else "wrong"
    except (IndexingError, EncoderError):
        return "detected"


def flips_of(tier: Tier) -> int:
    return 1_000 if tier.sweep else 20


def test_flipped_bytes(data: Path, checkpoint: Checkpoint, tmp_path: Path, tier: Tier) -> None:
    with opened(data, checkpoint) as directory:
        expected = answers(directory)
    files = [path.relative_to(data) for path in sorted(data.rglob("*")) if path.stat().st_size > 0]
    files = [file for file in files if (data / file).is_file()]
    random = np.random.default_rng(tier.seed)
    for turn in range(flips_of(tier)):
        copy = tmp_path / "copy"
        shutil.copytree(data, copy)
        where = flip(copy / files[turn % len(files)], random)
        examined = examine(copy, checkpoint)
        found = outcome(copy, checkpoint, expected)
        file = copy / files[turn % len(files)]
        if found == "wrong" and not examined and file.name in FOLLOWERS:
            file.unlink()  # what follows from the documents has no checksums: it is made again
            found = outcome(copy, checkpoint, expected)
        assert found == "same" or examined, f"seed {tier.seed}, flip {turn}: {where}"
        shutil.rmtree(copy)


def test_a_planted_flip_in_a_page_of_an_index_is_found(
    data: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "copy"))
    roots = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_documents_1'"
    [(page,)] = sql(copy / "store.sqlite3", roots)
    [(size,)] = sql(copy / "store.sqlite3", "PRAGMA page_size")
    content = bytearray((copy / "store.sqlite3").read_bytes())
    content[content.index(b"d20", (page - 1) * size) + 2] ^= 4
    (copy / "store.sqlite3").write_bytes(content)
    [finding] = examine(copy, checkpoint)
    assert "missing from index sqlite_autoindex_documents_1" in finding.problem
    repair(copy, checkpoint, [finding], None, SilentProgress())
    assert examine(copy, checkpoint) == ()
    with opened(data, checkpoint) as before, opened(copy, checkpoint) as after:
        assert answers(after) == answers(before)


def test_a_schema_that_is_not_utf_8(data: Path, checkpoint: Checkpoint, tmp_path: Path) -> None:
    """SQLite quotes it in its message, which Python then fails to decode."""
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    store = copy / "store.sqlite3"
    content = store.read_bytes().replace(b"tablemetameta", b"tablem\xf3tameta")
    store.write_bytes(content.replace(b"CREATE TABLE meta (", b"CREATE TABLX meta ("))
    assert any("damaged" in finding.problem for finding in examine(copy, checkpoint))
    assert outcome(copy, checkpoint, Answers(None, None, None, None)) == "detected"


@pytest.mark.slow
def test_flipped_bytes_of_a_checkpoint(checkpoint: Checkpoint, tmp_path: Path, tier: Tier) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(DEFAULT_CHECKPOINT, copy)
    random = np.random.default_rng(tier.seed)
    for turn, name in enumerate(sorted(checkpoint.files)):
        kept = (copy / name).read_bytes()
        where = flip(copy / name, random)
        with pytest.raises(EncoderError):
            read_verified(copy, checkpoint.files, name)
        try:
            damaged = load_checkpoint(copy)
        except EncoderError:
            pass
        else:
            assert list(examine_checkpoint(damaged)), f"seed {tier.seed}, flip {turn}: {where}"
        (copy / name).write_bytes(kept)
