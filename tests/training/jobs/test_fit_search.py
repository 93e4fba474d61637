"""What is fitted for search after training."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import fit_space, open_space, sample_blocks
from encoder.checkpoint import ALIGNMENT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import keep_blocks, keep_tokens
from index.progress import SilentProgress
from index.search.score import DEFAULT_RULE, read_fusion
from tests.kit.corpora import TOPIC_WORDS, write_linked_corpus
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import EncoderJob, find_corpus_files
from training.jobs.fit_search import (
    MIN_QUERIES,
    SearchFit,
    encode_again,
    fit_fusion,
    fit_search,
    fit_trained_space,
)

GROUPS = 90  # of two documents each, which are linked


@pytest.fixture
def trained(tiny_checkpoint: Path, tmp_path: Path) -> OnnxEncoder:
    shutil.copytree(tiny_checkpoint, tmp_path / "trained")
    return OnnxEncoder(load_checkpoint(tmp_path / "trained"), threads=1)


@pytest.fixture
def read(trained: OnnxEncoder, tmp_path: Path) -> Callable[[int], TrainingCorpus]:
    """Make a corpus of which so many groups are for validation, whose documents share one word."""

    def read_with(valid: int) -> TrainingCorpus:
        folder = write_groups(tmp_path / "corpus", valid)
        corpus = folder / "corpus.jsonl"
        encoded = keep_blocks(corpus, tmp_path / "blocks", trained, SilentProgress())
        return read_training_data([(find_corpus_files(folder), encoded)])[0]

    return read_with


def write_groups(folder: Path, valid: int, repeated: int = 12) -> Path:
    """Write the corpus of `read` into a new folder; its documents repeat their sentences."""
    folder.mkdir()
    names = [(f"a{group}", f"b{group}") for group in range(GROUPS)]
    lines = [
        {
            "id": name,
            "text": " ".join([*(f"The {word}." for word in repeated * words), 3 * f"Own{group}. "]),
        }
        for group, pair in enumerate(names)
        for name, words in zip(pair, (TOPIC_WORDS[::2], TOPIC_WORDS[1::2]), strict=True)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    parts = ["valid"] * valid + ["train"] * (GROUPS - valid)
    splits = [f"{n}\t{part}\n" for pair, part in zip(names, parts, strict=True) for n in pair]
    (folder / "splits.tsv").write_text("".join(splits))
    (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in names))
    return folder


def test_fusion_weights_are_fitted_to_the_validation_queries(
    read: Callable[[int], TrainingCorpus], trained: OnnxEncoder, tiny_checkpoint: Path
) -> None:
    start = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    found = fit_fusion(trained, start, [read(MIN_QUERIES)], SilentProgress())
    assert found is not None
    assert (found.queries, found.fitted) == (MIN_QUERIES, True)
    assert found.after["lexical"] == 1.0
    assert found.after["hybrid"] == 1.0 > found.after["vector"]  # which sees two kinds of documents
    rule = read_fusion(load_checkpoint(trained.checkpoint.directory))
    assert asdict(rule.hybrid) == found.rule["hybrid"]


@pytest.mark.slow
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


def test_the_space_takes_enough_blocks(
    read: Callable[[int], TrainingCorpus], trained: OnnxEncoder
) -> None:
    encoded = read(10).texts
    assert fit_trained_space(trained.checkpoint, [encoded])
    checkpoint = load_checkpoint(trained.checkpoint.directory)
    assert ALIGNMENT in checkpoint.files
    assert not fit_trained_space(checkpoint, [encoded.select(encoded.ids[:1])])


def fit_from_tokens(start: Path, folder: Path, recipe: str) -> SearchFit | None:
    """Fit a copy of a checkpoint as if training by a recipe, which read tokens, had made it."""
    shutil.copytree(start, folder / "trained")
    checkpoint = load_checkpoint(folder / "trained")
    corpus = write_groups(folder / "corpus", MIN_QUERIES, repeated=20)
    (folder / "recipe.toml").write_text(RECIPE + recipe)
    files = find_corpus_files(corpus)
    tokens = keep_tokens(files.corpus, folder / "tokens", checkpoint, SilentProgress())
    data = read_training_data([(files, tokens)])
    paths = {"recipe": folder / "recipe.toml", "output": folder / "out", "work": folder / "work"}
    job = EncoderJob(start=checkpoint, files=[files], precisions=["fp32"], **paths)
    encoder = OnnxEncoder(checkpoint, threads=1, precision="fp32")
    return fit_search(checkpoint, job, encoder, data, SilentProgress())


RECIPE = """
name = "tiny"
steps = 1
documents = 6
max_blocks = 8
[optimiser]
document_rate = 1e-3
sentence_rate = 1e-3
"""
WHOLE = '[sentence_level]\ntrained = "all"\nblocks = 8\n[[objective]]\nkind = '


def test_documents_are_encoded_again_as_an_index_encodes_them(
    tiny_ernie_doc: Path, tmp_path: Path
) -> None:
    encoder = OnnxEncoder(load_checkpoint(tiny_ernie_doc), threads=1)
    corpus = write_linked_corpus(tmp_path / "corpus") / "corpus.jsonl"
    stored = keep_blocks(corpus, tmp_path / "blocks", encoder, SilentProgress())
    tokens = keep_tokens(corpus, tmp_path / "tokens", encoder.checkpoint, SilentProgress())
    places = [7, 3]
    chosen = tokens.select([tokens.ids[place] for place in places])
    again = encode_again(chosen, encoder, SilentProgress())
    assert again.ids == tuple(stored.ids[place] for place in places)
    for row, place in enumerate(places):
        there = int(stored.rows[place])
        assert again.archive.blocks(row) == stored.archive.blocks(there)
        assert np.array_equal(again.archive.vectors(row), stored.archive.vectors(there))


@pytest.mark.slow
def test_the_space_of_a_recurrent_encoder_is_fitted_anew(
    tiny_ernie_doc: Path, tmp_path: Path
) -> None:
    found = fit_from_tokens(tiny_ernie_doc, tmp_path, f'{WHOLE}"links"')
    assert found is not None
    assert (found.queries, found.fitted) == (MIN_QUERIES, True)
    assert found.after["hybrid"] == found.after["lexical"] == 1.0
    checkpoint = load_checkpoint(tmp_path / "trained")
    assert asdict(read_fusion(checkpoint).hybrid) == found.rule["hybrid"]
    encoder = OnnxEncoder(checkpoint, threads=1, precision="fp32")
    corpus = tmp_path / "corpus/corpus.jsonl"
    encoded = keep_blocks(corpus, tmp_path / "blocks", encoder, SilentProgress())
    rows = encoded.rows[2 * MIN_QUERIES :].tolist()  # the training documents
    blocks = [encoded.archive.vectors(row) for row in rows]
    expected, fitted = fit_space(sample_blocks(blocks)), open_space(checkpoint)
    assert np.array_equal(fitted.mean, expected.mean)
    assert np.array_equal(fitted.projection, expected.projection)


@pytest.mark.parametrize(
    ("architecture", "recipe"),
    [
        ("tiny_ernie_doc", f'{WHOLE}"reorder"'),  # pretraining: fine-tuning follows
        ("tiny_checkpoint", f'{WHOLE.replace("8", "2")}"links"'),  # the document level follows
    ],
)
def test_where_another_training_follows_nothing_is_fitted(
    request: pytest.FixtureRequest, tmp_path: Path, architecture: str, recipe: str
) -> None:
    start = request.getfixturevalue(architecture)
    assert fit_from_tokens(start, tmp_path, recipe) is None
    before, after = (load_checkpoint(path).files for path in (start, tmp_path / "trained"))
    assert before == after
