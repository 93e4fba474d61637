"""The term channel as serving opens it: what it counts, and which tables it refuses."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32
from encoder.checkpoint import CONFIG, TERMS, Checkpoint, load_checkpoint, write_manifest
from encoder.errors import CheckpointError
from encoder.terms import term_channel
from encoder.terms.term_table import TermVocabulary, count_words, read_term_table, write_term_table
from encoder.tokenizer import BlockTokenizer


@pytest.fixture
def copied(tiny_terms: Path, tmp_path: Path) -> Path:
    """A checkpoint with a term channel that a test may change."""
    return Path(shutil.copytree(tiny_terms, tmp_path / "copied"))


def find_blocks(checkpoint: Checkpoint, text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(block) for block in BlockTokenizer(checkpoint)(text).blocks)


def test_features_are_those_of_all_blocks_in_any_order(tiny_terms: Path) -> None:
    checkpoint = load_checkpoint(tiny_terms)
    channel = term_channel.open_term_channel(checkpoint)
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


def test_a_changed_or_missing_table_is_refused(copied: Path, tiny_terms: Path) -> None:
    table = read_term_table((copied / TERMS).read_bytes(), TERMS)
    write_term_table(copied / TERMS, type(table)(table.weights * 2, table.vectors, table.scales))
    with pytest.raises(CheckpointError, match=r"terms\.npz is not the file"):
        term_channel.open_term_channel(load_checkpoint(copied))
    write_manifest(copied)  # another table is another encoder
    assert load_checkpoint(copied).fingerprint != load_checkpoint(tiny_terms).fingerprint
    (copied / TERMS).unlink()
    write_manifest(copied)
    with pytest.raises(CheckpointError, match=r"terms\.npz is not part of this checkpoint"):
        term_channel.open_term_channel(load_checkpoint(copied))


@pytest.mark.parametrize("field", ["term_buckets", "term_features"])
def test_a_table_of_other_sizes_is_refused(copied: Path, field: str) -> None:
    config = json.loads((copied / CONFIG).read_text())
    config["model"][field] += 1
    (copied / CONFIG).write_text(json.dumps(config))
    write_manifest(copied)
    with pytest.raises(CheckpointError, match=r"terms\.npz: .* where the configuration has"):
        term_channel.open_term_channel(load_checkpoint(copied))


PIECES, BUCKETS = 4_000, 1_000
VOCABULARY = TermVocabulary(np.arange(PIECES) % 4 == 3, BUCKETS)  # every fourth continues a word


def hashed_terms_of(dimension: int) -> term_channel.HashedTerms:
    weights = np.random.default_rng(0).uniform(0.5, 9, VOCABULARY.rows).astype(np.float32)
    return term_channel.HashedTerms(VOCABULARY, weights, dimension)


def documents(number: int = 60, length: int = 300) -> list[list[list[int]]]:
    """Documents that share words with the next ones, in blocks of 50 tokens."""
    random = np.random.default_rng(1)
    tokens = random.integers(0, PIECES, size=(number + 5) * length // 2)
    starts = [n * length // 2 for n in range(number)]
    return [
        [tokens[at : at + 50].tolist() for at in range(start, start + length, 50)]
        for start in starts
    ]


def tfidf(hasher: term_channel.HashedTerms, blocks: list[list[int]]) -> Float32:
    terms = count_words(VOCABULARY, blocks)
    vector = np.zeros(VOCABULARY.rows, dtype=np.float32)
    vector[terms.rows] = np.log1p(terms.counts) * hasher.weights[terms.rows]
    return vector / np.linalg.norm(vector)


def test_cosines_of_hashed_terms_are_those_of_tfidf() -> None:
    terms = hashed_terms_of(512)
    some = documents()
    exact = np.stack([tfidf(terms, item) for item in some])
    hashed = np.stack([terms.features(item) for item in some])
    assert np.allclose(np.linalg.norm(hashed, axis=1), 1, atol=1e-5)
    errors = hashed @ hashed.T - exact @ exact.T
    assert (exact @ exact.T)[0, 1] > 0.2 > 0.1 > (exact @ exact.T)[0, 9]
    assert 0.5 / np.sqrt(512) < errors[np.triu_indices(60, 1)].std() < 1.5 / np.sqrt(512)


def test_places_and_signs_are_fixed() -> None:
    """Vectors that lie in an index must stay comparable with those of a later release."""
    terms = term_channel.HashedTerms(VOCABULARY, np.ones(VOCABULARY.rows, dtype=np.float32), 16)
    features = [terms.features([[token]]) for token in (0, 1, 2, 4, 3_998)]
    places = [(int(np.abs(item).argmax()), float(item.sum())) for item in features]
    assert places == [(7, -1.0), (10, 1.0), (7, -1.0), (13, -1.0), (13, 1.0)]


def test_weights_are_read_back_in_half_precision(tmp_path: Path) -> None:
    terms = hashed_terms_of(32)
    term_channel.write_hashed_terms(tmp_path / "sketch.npz", terms)
    data = (tmp_path / "sketch.npz").read_bytes()
    read = term_channel.read_hashed_terms(data, "sketch.npz", VOCABULARY, 32)
    assert np.array_equal(read.weights, terms.weights.astype(np.float16).astype(np.float32))
    other = TermVocabulary(VOCABULARY.continues, BUCKETS + 1)
    with pytest.raises(CheckpointError, match="where the vocabulary has 5001"):
        term_channel.read_hashed_terms(data, "here", other, 32)


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x03\x04"])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"here\.npz: is not a file of hashed terms"):
        term_channel.read_hashed_terms(data, "here.npz", VOCABULARY, 32)
