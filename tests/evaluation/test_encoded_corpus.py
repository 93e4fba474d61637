import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from encoder.checkpoint import load_checkpoint
from encoder.errors import ArchiveError
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import (
    EncodedCorpus,
    embed_encoded_corpus,
    keep_blocks,
)
from index.document import SkippedInput
from index.embed import embed_corpus
from index.errors import CorpusError
from index.progress import SilentProgress


class Watching(SilentProgress):
    """Counts what is encoded and refused."""

    def __init__(self) -> None:
        self.tokens = 0
        self.documents = 0
        self.refusals: list[SkippedInput] = []

    def skipped(self, skipped: SkippedInput) -> None:
        self.refusals.append(skipped)

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        self.documents += count
        self.tokens += tokens


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint: Path) -> OnnxEncoder:
    return OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)


def write_corpus(path: Path, texts: dict[str, str]) -> Path:
    lines = (json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def require_same(encoded: EncodedCorpus, texts: dict[str, str], encoder: OnnxEncoder) -> None:
    assert encoded.ids == tuple(texts)
    for row, tokens, text in zip(encoded.rows, encoded.tokens, texts.values(), strict=True):
        blocks = encoder.read(text)
        assert encoded.archive.blocks(row) == tuple(map(list, blocks.blocks))
        assert tokens == blocks.receipt.tokens
        expected = encoder.encode([blocks]).block_vectors[0].astype(np.float16)
        assert np.array_equal(encoded.archive.vectors(row), expected)


def test_only_new_texts_are_encoded(encoder: OnnxEncoder, tmp_path: Path) -> None:
    texts = {"a": "The river runs. " * 9, "b": "Stones lie still.", "c": "Stones lie still."}
    corpus = write_corpus(tmp_path / "c.jsonl", texts)
    first = Watching()
    encoded = keep_blocks(corpus, tmp_path / "blocks", encoder, first)
    require_same(encoded, texts, encoder)
    assert len(encoded.archive) == 2  # equal texts share one row
    assert first.documents == 3
    assert first.tokens == encoded.tokens[:2].sum()
    texts = {
        "c": "Stones lie still.",
        "a": "A new text of a known id.",
        "d": "The river runs. " * 9,
    }
    write_corpus(corpus, texts)
    second = Watching()
    require_same(keep_blocks(corpus, tmp_path / "blocks", encoder, second), texts, encoder)
    assert 0 < second.tokens < 10


def test_what_has_no_token_is_refused(encoder: OnnxEncoder, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", {"a": "Text.", "b": "\x01\x02 \x03"})
    with corpus.open("a") as file:
        file.write("{oops\n")
    watching = Watching()
    encoded = keep_blocks(corpus, tmp_path / "blocks", encoder, watching)
    assert encoded.ids == ("a",)
    assert encoded.skipped == len(watching.refusals) == 2
    write_corpus(corpus, {"b": "\x01"})
    with pytest.raises(CorpusError, match="no document"):
        keep_blocks(corpus, tmp_path / "other", encoder, SilentProgress())


def test_an_encoder_that_reads_less_of_a_document_is_another_one(
    encoder: OnnxEncoder, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", {"a": "One word after the other. " * 300})
    encoded = keep_blocks(corpus, tmp_path / "blocks", encoder, SilentProgress())
    assert len(encoded.archive.vectors(0)) == encoder.checkpoint.max_blocks
    assert encoded.tokens[0] == 1_800
    shorter = OnnxEncoder(replace(encoder.checkpoint, max_blocks=2), threads=1)
    with pytest.raises(ArchiveError, match="max_blocks 64, not 2"):
        keep_blocks(corpus, tmp_path / "blocks", shorter, SilentProgress())


def test_what_was_encoded_before_an_interruption_stays(
    encoder: OnnxEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(Watching):
        def advanced(self, count: int, *, tokens: int = 0) -> None:
            super().advanced(count, tokens=tokens)
            if self.documents >= 16:
                raise KeyboardInterrupt

    monkeypatch.setattr("index.build.BATCH_DOCUMENTS", 8)
    texts = {f"d{n}": f"Word {n} and a word. " * (1 + n % 7) for n in range(40)}
    corpus, blocks = write_corpus(tmp_path / "c.jsonl", texts), tmp_path / "blocks"
    with pytest.raises(KeyboardInterrupt):
        keep_blocks(corpus, blocks, encoder, Interrupting())
    watching = Watching()
    encoded = keep_blocks(corpus, blocks, encoder, watching)
    require_same(encoded, texts, encoder)
    assert watching.tokens < encoded.tokens.sum()


def test_one_writer_at_a_time(encoder: OnnxEncoder, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", {"a": "Text."})
    (tmp_path / "blocks").mkdir()
    with (
        FileLock(tmp_path / "blocks" / "writer.lock"),
        pytest.raises(CorpusError, match="another process"),
    ):
        keep_blocks(corpus, tmp_path / "blocks", encoder, SilentProgress())


def test_kept_blocks_give_the_vectors_of_the_texts(encoder: OnnxEncoder, tmp_path: Path) -> None:
    texts = {"a": "A river. " * 30, "b": "Music. " * 2_000, "c": "A river. " * 30, "d": "Stones."}
    corpus = write_corpus(tmp_path / "c.jsonl", texts)
    encoded = keep_blocks(corpus, tmp_path / "kept", encoder, SilentProgress())
    kept = embed_encoded_corpus(encoded, encoder)
    fresh = embed_corpus(corpus, encoder, SilentProgress())
    assert kept.ids == fresh.ids
    assert np.allclose(kept.vectors, fresh.vectors, atol=2e-3)
    assert kept.tokens.tolist() == fresh.tokens.tolist()
    assert kept.tokens_read.tolist() == fresh.tokens_read.tolist()
    blocks = encoded.select(["d", "c", "a"])
    assert blocks.rows[1] == blocks.rows[2]  # equal texts are kept once
    assert blocks.sizes[0] == 1
    assert blocks.sizes[1] > 1
    with pytest.raises(CorpusError, match="1 documents have no blocks, the first of them 'x'"):
        encoded.select(["a", "x"])
