from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32, Int64
from evaluation.encoded_corpus import EncodedCorpus
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import find_corpus_files
from training.data.pair_files import VALID
from training.data.sampling import DocumentSlice
from training.jobs import validation

DOCUMENTS = 30


@pytest.fixture
def read(
    encode_texts: Callable[..., EncodedCorpus], tmp_path: Path
) -> Callable[..., TrainingCorpus]:
    texts = {f"d{n}": "A sentence. " * (1 + n % 4) + f"Own {n}." for n in range(DOCUMENTS)}
    encoded = encode_texts(texts)

    def read_with(**files: str) -> TrainingCorpus:
        parts = ["train", "train", "valid"]
        splits = "".join(f"d{n}\t{parts[n % 3]}\n" for n in range(DOCUMENTS))
        for name, content in (files | {"splits.tsv": splits}).items():
            (tmp_path / "corpus" / name.replace("_", ".")).write_text(content)
        return read_training_data([(find_corpus_files(tmp_path / "corpus"), encoded)])[0]

    return read_with


def encode_rows(parts: Sequence[DocumentSlice]) -> Float32:
    """A document is a direction of its own; so are its halves, whichever they are."""
    return np.eye(DOCUMENTS, dtype=np.float32)[[part.row for part in parts]]


def encode_alike(parts: Sequence[DocumentSlice]) -> Float32:
    """All documents are one direction but for a little that their rows decide."""
    angles = np.array([part.row for part in parts]) * 1e-2
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def cosines(encode: Callable[[Sequence[DocumentSlice]], Float32]) -> validation.Similarities:
    def similarities(parts: Sequence[DocumentSlice], queries: Int64) -> Float32:
        vectors = encode(parts)
        found: Float32 = vectors[queries] @ vectors.T
        return found

    return similarities


def measured(
    corpus: TrainingCorpus,
    encode: Callable[[Sequence[DocumentSlice]], Float32],
    max_blocks: int = 64,
    documents: int = 1_000,
) -> float:
    return validation.measure([corpus], cosines(encode), max_blocks, documents)


def test_halves(read: Callable[..., TrainingCorpus]) -> None:
    corpus = read()
    assert validation.choose_figure([corpus]) == validation.HALVES
    assert measured(corpus, encode_rows) == 1.0

    def encode_by_length(parts: Sequence[DocumentSlice]) -> Float32:
        return encode_rows(
            [DocumentSlice(0, 0 if part.places is None else len(part.places)) for part in parts]
        )

    assert measured(corpus, encode_by_length) < 1.0


def test_no_half_lies_beyond_what_is_read(read: Callable[..., TrainingCorpus]) -> None:
    seen: list[int] = []

    def encode(parts: Sequence[DocumentSlice]) -> Float32:
        seen.extend(int(part.places.max()) for part in parts if part.places is not None)
        return encode_rows(parts)

    measured(read(), encode, 2)
    assert max(seen) == 1


def test_links_are_before_pairs(read: Callable[..., TrainingCorpus]) -> None:
    held_out = range(2, DOCUMENTS, 3)
    qrels = "".join(f"d{n}\t0\td{n - 1}\t1\n" for n in held_out)
    pairs = "".join(
        f'{{"source": "d{n}", "target": "d{n + 3}", "label": {n % 2}}}\n' for n in held_out[:-1]
    )
    corpus = read(qrels_tsv=qrels, pairs_valid_jsonl=pairs)
    assert validation.choose_figure([corpus]) == validation.LINKS
    assert set(corpus.judgements) == {f"d{row}" for row in corpus.rows(VALID)}
    near = measured(corpus, encode_alike)  # its two neighbours by row come first
    assert 0.6 < near <= 1.0
    assert measured(corpus, encode_rows) < near


def test_pairs(read: Callable[..., TrainingCorpus]) -> None:
    similar = '{"source": "d2", "target": "d5", "label": 1}\n'
    corpus = read(pairs_valid_jsonl=similar + '{"source": "d2", "target": "d29", "label": 0}\n')
    assert validation.choose_figure([corpus]) == validation.PAIRS
    assert measured(corpus, encode_alike) == 1.0
    assert measured(corpus, lambda parts: -encode_rows(parts)) == 0.5
    assert validation.choose_figure([read(pairs_valid_jsonl=similar)]) == validation.HALVES


@pytest.mark.parametrize("limit", [4, 9, 29])
def test_a_limit_leaves_out_queries_but_no_match_of_the_others(
    read: Callable[..., TrainingCorpus], limit: int
) -> None:
    held_out = range(2, DOCUMENTS, 3)
    corpus = read(qrels_tsv="".join(f"d{n}\t0\td{n - 1}\t1\n" for n in held_out))
    seen: list[int] = []

    def encode(parts: Sequence[DocumentSlice]) -> Float32:
        seen.extend(part.row for part in parts)
        return encode_alike(parts)

    assert measured(corpus, encode, documents=limit) > 0.6
    assert len(seen) == len(set(seen)) == limit
    queries = [n for n in held_out if {n, n - 1} <= set(seen)]
    assert len(queries) >= min(limit // 2, len(held_out)) - 1
