"""What is fitted for search after training."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import ALIGNMENT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import encode_corpus
from index.progress import SilentProgress
from index.search.fusion import DEFAULT_RULE, read_fusion
from tests.tools.corpora import TOPIC_WORDS
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import find_corpus_files
from training.data.splits import TRAIN, VALID
from training.jobs.fit_search import MIN_QUERIES, fit_fusion, fit_trained_space

GROUPS = 90  # of two documents each, which are linked


@pytest.fixture
def trained(tiny_checkpoint: Path, tmp_path: Path) -> OnnxEncoder:
    shutil.copytree(tiny_checkpoint, tmp_path / "trained")
    return OnnxEncoder(load_checkpoint(tmp_path / "trained"), threads=1)


@pytest.fixture
def read(trained: OnnxEncoder, tmp_path: Path) -> Callable[[int], TrainingCorpus]:
    """Make a corpus of which so many groups are for validation, whose documents share one word."""

    def read_with(valid: int) -> TrainingCorpus:
        folder = tmp_path / "corpus"
        folder.mkdir()
        names = [(f"a{group}", f"b{group}") for group in range(GROUPS)]
        lines = [
            {
                "id": name,
                "text": " ".join([*(f"The {word}." for word in 12 * words), 3 * f"Own{group}. "]),
            }
            for group, pair in enumerate(names)
            for name, words in zip(pair, (TOPIC_WORDS[::2], TOPIC_WORDS[1::2]), strict=True)
        ]
        corpus = folder / "corpus.jsonl"
        corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
        parts = ["valid"] * valid + ["train"] * (GROUPS - valid)
        splits = [f"{n}\t{part}\n" for pair, part in zip(names, parts, strict=True) for n in pair]
        (folder / "splits.tsv").write_text("".join(splits))
        (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in names))
        encoded = encode_corpus(corpus, tmp_path / "blocks", trained, SilentProgress())
        return read_training_data([(find_corpus_files(folder), encoded)])[0]

    return read_with


def test_the_weights_of_words_are_learned_from_the_validation_queries(
    read: Callable[[int], TrainingCorpus], trained: OnnxEncoder, tiny_checkpoint: Path
) -> None:
    start = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    found = fit_fusion(trained, start, [read(MIN_QUERIES)], SilentProgress())
    assert found is not None
    assert (found.queries, found.fitted) == (MIN_QUERIES, True)
    assert found.after["lexical"] == 1.0
    assert found.after["hybrid"] == 1.0 > found.after["vector"]  # which sees two kinds of documents
    rule = read_fusion(load_checkpoint(trained.checkpoint.directory))
    assert rule.lexical_weight == found.rule["lexical_weight"]


def test_few_queries_do_not_change_the_weights(
    read: Callable[[int], TrainingCorpus], trained: OnnxEncoder
) -> None:
    data = [read(MIN_QUERIES - 1)]
    found = fit_fusion(trained, trained, data, SilentProgress())
    assert found is not None
    assert (found.queries, found.fitted) == (MIN_QUERIES - 1, False)
    rule = read_fusion(load_checkpoint(trained.checkpoint.directory))
    assert rule != DEFAULT_RULE  # by the expected alignment score of these vectors
    former = replace(DEFAULT_RULE, **{f"expected_{n}": 0.0 for n in ("slope", "intercept")})
    assert replace(rule, expected_slope=0.0, expected_intercept=0.0) == former


def test_without_validation_queries_nothing_is_fitted(
    read: Callable[[int], TrainingCorpus], trained: OnnxEncoder
) -> None:
    data = replace(read(3), judgements={})
    assert fit_fusion(trained, trained, [data], SilentProgress()) is None


def test_the_space_is_of_the_training_documents(
    read: Callable[[int], TrainingCorpus], trained: OnnxEncoder
) -> None:
    data = read(10)
    assert fit_trained_space(trained.checkpoint, [data])
    checkpoint = load_checkpoint(trained.checkpoint.directory)
    assert ALIGNMENT in checkpoint.files
    parts = np.full_like(data.parts, VALID)
    parts[0] = TRAIN
    assert not fit_trained_space(checkpoint, [replace(data, parts=parts)])
