"""Encoders of other projects in a process of their own."""

import sys
from pathlib import Path

import pytest

from benchmarks.speed.peers.process import CHUNK_TOKENS, cut_texts, open_peer
from encoder.checkpoint import load_checkpoint
from encoder.tokenizer import open_tokenizer


def test_chunks_hold_the_whole_text(tiny_checkpoint: Path) -> None:
    tokenizer = open_tokenizer(load_checkpoint(tiny_checkpoint))
    texts = ["one two three " * 300, "", "four"]
    chunks = cut_texts(tokenizer, texts)
    assert set(chunks.document.tolist()) == {0, 2}
    first = [one for one, of in zip(chunks.texts, chunks.document, strict=True) if of == 0]
    assert "".join("".join(first).split()) == "".join(texts[0].split())
    sizes = [len(tokenizer.encode(one, add_special_tokens=False)) for one in first]
    assert sizes[:-1] == [CHUNK_TOKENS] * (len(first) - 1)


def test_a_worker_that_cannot_start_is_an_error(tiny_checkpoint: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="the worker ended with status 1"),
        open_peer("unknown", Path(sys.executable), tiny_checkpoint, 1, ["some text"]),
    ):
        pass
