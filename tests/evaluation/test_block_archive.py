import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.blocks import Receipt, SentenceBlocks
from encoder.checkpoint import load_checkpoint
from encoder.errors import ArchiveError
from evaluation import block_archive
from index.errors import StoreError

KEY = block_archive.ArchiveKey(
    block_encoder="a" * 64, tokenizer="b" * 64, block_length=16, long_sentence="split",
    language="en", max_blocks=5, block_dimension=4, token_type="uint16",
)  # fmt: skip


def document(seed: int) -> tuple[SentenceBlocks, np.ndarray]:
    """A document that its number decides."""
    rng = random.Random(seed)
    blocks = tuple(
        tuple(rng.randrange(2**16) for _ in range(rng.randrange(1, 14)))
        for _ in range(rng.randrange(1, 6))
    )
    offsets = tuple((0, 1) for _ in blocks)
    vectors = np.array([[rng.uniform(-1, 1) for _ in range(4)] for _ in blocks], np.float32)
    return SentenceBlocks(blocks, offsets, Receipt(1, 1, len(blocks), 0, 1)), vectors


def write(writer: block_archive.BlockArchiveWriter, start: int, stop: int) -> None:
    made = {str(seed): document(seed) for seed in range(start, stop)}
    writer.append({n: blocks for n, (blocks, _) in made.items()}, [v for _, v in made.values()])


def require_documents(archive: block_archive.BlockArchive, number: int) -> None:
    assert len(archive) == number
    for row in range(number):
        blocks, vectors = document(row)
        assert archive.blocks(row) == tuple(map(list, blocks.blocks))
        assert np.array_equal(archive.vectors(row), vectors.astype(np.float16))


def test_what_is_committed_is_read_and_what_failed_is_not(tmp_path: Path) -> None:
    writer = block_archive.BlockArchiveWriter(tmp_path, KEY)
    write(writer, 0, 2)
    write(writer, 2, 2)
    reading = block_archive.read_block_archive(tmp_path, KEY)
    behind = block_archive.BlockArchiveWriter(tmp_path, KEY)
    write(writer, 2, 3)
    with pytest.raises(StoreError, match=r"archive\.sqlite3.*number"):
        write(behind, 3, 5)
    again = block_archive.BlockArchiveWriter(tmp_path, KEY)
    assert again.row_of == {"0": 0, "1": 1, "2": 2}
    write(again, 3, 4)
    require_documents(block_archive.read_block_archive(tmp_path, KEY), 4)
    require_documents(reading, 2)


def test_tokens_alone_and_how_many_are_read(tmp_path: Path) -> None:
    writer = block_archive.BlockArchiveWriter(tmp_path, KEY)
    write(writer, 0, 4)
    archive = block_archive.read_block_archive(tmp_path)
    bare = archive.without_vectors(7)
    assert bare.vectors(2).shape == (len(archive.blocks(2)), 7)
    assert not bare.vectors(2).any()
    assert bare.blocks(2) == archive.blocks(2)
    for limit in (1, 3, 9):
        read = [sum(map(len, archive.blocks(row)[:limit])) for row in range(4)]
        assert archive.mean_tokens(limit) == pytest.approx(sum(read) / 4)


def test_what_another_encoder_made_is_refused(tmp_path: Path) -> None:
    other = replace(KEY, language="de")
    write(block_archive.BlockArchiveWriter(tmp_path, KEY), 0, 2)
    with pytest.raises(ArchiveError, match="made with another encoder"):
        block_archive.read_block_archive(tmp_path, other)
    with pytest.raises(ArchiveError, match="made with another encoder"):
        block_archive.BlockArchiveWriter(tmp_path, other)
    require_documents(block_archive.read_block_archive(tmp_path, KEY), 2)


def test_damage_is_named(tmp_path: Path) -> None:
    write(block_archive.BlockArchiveWriter(tmp_path, KEY), 0, 2)
    (tmp_path / "archive.sqlite3").write_bytes(b"no database" * 999)
    with pytest.raises(StoreError, match=r"archive\.sqlite3"):
        block_archive.read_block_archive(tmp_path)
    with pytest.raises(StoreError, match=r"archive\.sqlite3"):
        block_archive.BlockArchiveWriter(tmp_path, KEY)


def test_a_directory_without_an_archive(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"archive\.sqlite3"):
        block_archive.read_block_archive(tmp_path)
    block_archive.BlockArchiveWriter(tmp_path, KEY)
    archive = block_archive.read_block_archive(tmp_path)
    assert len(archive) == 0
    with pytest.raises(IndexError):
        archive.vectors(0)


def test_blocks_and_vectors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    writer = block_archive.BlockArchiveWriter(tmp_path, KEY)
    blocks, vectors = document(1)
    with pytest.raises(ArchiveError, match="shape"):
        writer.append({"1": blocks}, [vectors[:, :3]])
    write(writer, 0, 1)
    require_documents(block_archive.read_block_archive(tmp_path), 1)


def test_the_key_of_a_checkpoint(tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    key = block_archive.archive_key(checkpoint)
    assert key.block_encoder == checkpoint.files["int8/block_encoder.onnx"]
    assert (key.max_blocks, key.block_dimension, key.token_type) == (64, 32, "uint16")
    assert block_archive.archive_key(checkpoint, precision="fp32") != key
    with pytest.raises(ArchiveError, match="fp8"):
        block_archive.archive_key(checkpoint, precision="fp8")
