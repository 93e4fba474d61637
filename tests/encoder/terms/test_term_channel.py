"""The term channel as serving opens it: what it counts, and which tables it refuses."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import CONFIG, TERMS, Checkpoint, load_checkpoint, write_manifest
from encoder.errors import CheckpointError
from encoder.onnx_encoder import OnnxEncoder
from encoder.terms.term_channel import open_term_channel
from encoder.terms.term_table import read_term_table, write_term_table
from encoder.tokenizer import BlockTokenizer


@pytest.fixture
def copied(tiny_terms: Path, tmp_path: Path) -> Path:
    """A checkpoint with a term channel that a test may change."""
    return Path(shutil.copytree(tiny_terms, tmp_path / "copied"))


def find_blocks(checkpoint: Checkpoint, text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(block) for block in BlockTokenizer(checkpoint)(text).blocks)


def test_a_checkpoint_without_one_has_no_features(tiny_checkpoint: Path) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    channel = open_term_channel(checkpoint)
    assert channel.features(find_blocks(checkpoint, "A river runs.")).shape == (0,)


def test_features_are_those_of_the_words_of_all_blocks_in_any_order(tiny_terms: Path) -> None:
    checkpoint = load_checkpoint(tiny_terms)
    channel = open_term_channel(checkpoint)
    blocks = find_blocks(checkpoint, "The Danube flows east to the sea. Trees feed on light. " * 2)
    assert len(blocks) > 1
    features = channel.features(blocks)
    width = checkpoint.model["term_features"]
    assert features.shape == (width + checkpoint.model["sketch_dimension"],)
    assert np.array_equal(features, channel.features(blocks[::-1]))
    assert not np.allclose(features, channel.features(blocks[:1]))
    known = channel.table.features(channel.vocabulary.count(blocks))
    assert np.array_equal(features[:width], known)
    assert np.array_equal(features[width:], channel.hashed.features(blocks))


def test_words_decide_over_document_vectors_beside_blocks(tiny_terms: Path) -> None:
    checkpoint = load_checkpoint(tiny_terms)
    encoder = OnnxEncoder(checkpoint, precision="fp32", threads=1)
    here, there = (
        find_blocks(checkpoint, text) for text in ("Rivers of Spain.", "A brass engine.")
    )
    vectors = encoder.encode_blocks(here[:1])
    known = checkpoint.model["term_dimension"]
    words = slice(known, -checkpoint.model["sketch_dimension"])
    own, others = (encoder.encode_document(blocks, vectors) for blocks in (here, there))
    assert np.isclose(np.linalg.norm(own), 1, atol=1e-5)
    assert np.allclose(own[words], others[words], atol=1e-6)
    assert not np.allclose(own[:known], others[:known], atol=1e-2)


def test_a_changed_table_is_refused(copied: Path) -> None:
    (copied / TERMS).write_bytes(b"another")
    with pytest.raises(CheckpointError, match=r"terms\.npz is not the file"):
        open_term_channel(load_checkpoint(copied))


def test_a_missing_table_is_refused(copied: Path) -> None:
    (copied / TERMS).unlink()
    write_manifest(copied)
    with pytest.raises(CheckpointError, match=r"terms\.npz is not part of this checkpoint"):
        open_term_channel(load_checkpoint(copied))


@pytest.mark.parametrize("field", ["term_buckets", "term_features"])
def test_a_table_of_other_sizes_is_refused(copied: Path, field: str) -> None:
    config = json.loads((copied / CONFIG).read_text())
    config["model"][field] += 1
    (copied / CONFIG).write_text(json.dumps(config))
    write_manifest(copied)
    with pytest.raises(CheckpointError, match=r"terms\.npz: .* where the configuration has"):
        open_term_channel(load_checkpoint(copied))


def test_another_table_is_another_encoder(copied: Path, tiny_terms: Path) -> None:
    table = read_term_table((copied / TERMS).read_bytes(), TERMS)
    write_term_table(copied / TERMS, type(table)(table.weights * 2, table.vectors, table.scales))
    write_manifest(copied)
    assert load_checkpoint(copied).fingerprint != load_checkpoint(tiny_terms).fingerprint
