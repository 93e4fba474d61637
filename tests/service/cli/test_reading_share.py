"""--reading-share as a user types it, on the tiny checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import WHOLE, load_checkpoint, split_fingerprint, with_reading_share
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import embed_encoded_corpus, keep_blocks
from index.embed import embed_corpus
from index.progress import SilentProgress
from index.store.schema import read_space
from tests.kit.command import Run

SHARE = 0.25


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    folder.mkdir()
    for name, thing in (("rivers", "stones"), ("music", "notes"), ("trees", "leaves")):
        lines = [f"Part {n} of {name} has {n * 7} {thing} and no more." for n in range(40)]
        (folder / f"{name}.txt").write_text("\n\n".join(lines))
    return folder


def encoded(longmatch: Run, corpus: Path, *options: object) -> float:
    """Return which share of the tokens of a file `match` encodes."""
    answer = longmatch("match", corpus / "rivers.txt", "--json", *options)
    assert answer.status == 0, answer.err
    found = json.loads(answer.out)
    assert found["matches"][0]["id"] == "rivers.txt"
    return found["receipt"]["tokens_encoded"] / found["receipt"]["tokens_read"]


def test_a_data_directory_keeps_its_share(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    assert longmatch("index", corpus, "--reading-share", SHARE).status == 0
    stored = read_space(tmp_path / "data" / "store.sqlite3").fingerprint
    assert split_fingerprint(stored)[1] == SHARE
    assert encoded(longmatch, corpus) == pytest.approx(SHARE, abs=0.05)
    shown = longmatch("match", corpus / "rivers.txt")
    assert ", encoded " in shown.err
    again = longmatch("index", corpus)
    assert (again.status, "3 unchanged" in again.err) == (0, True)
    assert longmatch("doctor", tmp_path / "data").status == 0
    wanted = ("--min-score", 0, "-o", tmp_path / "pairs.jsonl")
    assert longmatch("pairs", tmp_path / "data", *wanted).status == 0
    refused = longmatch("index", corpus, "--reading-share", 0.5)
    assert refused.status == 2
    assert "made with a reading share of 0.25, not of 0.5" in refused.err


@pytest.mark.slow
def test_reencode_changes_the_share(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert longmatch("index", corpus).status == 0
    assert encoded(longmatch, corpus) == 1.0
    answer = longmatch("reencode", data, "--reading-share", SHARE)
    assert (answer.status, "reading share 0.25" in answer.err) == (0, True)
    assert encoded(longmatch, corpus) == pytest.approx(SHARE, abs=0.05)
    assert longmatch("doctor", data).status == 0
    again = longmatch("reencode", data, "--reading-share", SHARE)
    assert (again.status, "nothing to do" in again.err) == (2, True)
    assert longmatch("reencode", data, "--reading-share", 1).status == 0
    assert encoded(longmatch, corpus) == 1.0


def test_kept_blocks_serve_every_share(corpus: Path, tmp_path: Path, tiny_checkpoint: Path) -> None:
    made = []
    for share in (WHOLE, SHARE):
        encoder = OnnxEncoder(with_reading_share(load_checkpoint(tiny_checkpoint), share))
        plain = embed_corpus(corpus, encoder, SilentProgress())
        blocks = keep_blocks(corpus, tmp_path / "blocks", encoder, SilentProgress())
        # block vectors are kept in half precision
        kept = embed_encoded_corpus(blocks, encoder)
        assert np.abs(plain.vectors - kept.vectors).max() < 1e-3
        made.append(plain.vectors)
    assert np.abs(made[0] - made[1]).max() > 1e-2


@pytest.mark.parametrize("share", ["0", "1.01", "0.333"])
def test_what_is_no_share_is_refused(longmatch: Run, corpus: Path, share: str) -> None:
    answer = longmatch("index", corpus, "--reading-share", share)
    assert (answer.status, "--reading-share" in answer.err) == (2, True)


def test_a_recurrent_encoder_has_no_share(
    longmatch: Run, corpus: Path, tiny_ernie_doc: Path
) -> None:
    answer = longmatch("index", corpus, "--reading-share", 0.5, "--encoder", tiny_ernie_doc)
    assert (answer.status, "encodes every sentence block" in answer.err) == (2, True)
