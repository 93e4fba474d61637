"""ERNIE-Doc from the command line: pretrained, fine-tuned, exported and indexed."""

import shutil
from pathlib import Path

import pytest

from encoder.block_archive import read_block_archive
from encoder.checkpoint import load_checkpoint
from index.embed import read_embedded_corpus
from tests.tools.command import Run
from tests.tools.corpora import write_linked_corpus

RECIPE = """
name = "tiny"
steps = 2
documents = 6
chunk = 3
max_blocks = 8
precision = "{precision}"
validation_interval = 1
checkpoint_interval = 1
[optimiser]
document_rate = 1e-3
sentence_rate = 1e-3
[sentence_level]
trained = "{trained}"
{level}
[[objective]]
{objective}
"""
PRETRAINING = 'kind = "reorder"\nchunks = 3'
LINKS = 'kind = "links"'


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_linked_corpus(tmp_path / "corpus")


def write(path: Path, **changes: str) -> Path:
    values = {"precision": "fp32", "trained": "all", "level": "blocks = 8", "objective": LINKS}
    path.write_text(RECIPE.format(**(values | changes)))
    return path


@pytest.mark.slow
def test_it_is_pretrained_and_fine_tuned(
    longmatch: Run, corpus: Path, tiny_ernie_doc: Path, tmp_path: Path
) -> None:
    start = tiny_ernie_doc
    for name, changes in (
        ("pretrained", {"objective": PRETRAINING}),
        ("tuned", {"precision": "bf16", "trained": "last", "level": "blocks = 8\nlayers = 1"}),
    ):
        recipe, output = write(tmp_path / f"{name}.toml", **changes), tmp_path / name
        train = ("lab", "train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
        assert longmatch(*train, "--checkpoint", start).status == 0
        trained = load_checkpoint(output)
        assert trained.model == load_checkpoint(tiny_ernie_doc).model
        assert trained.fingerprint != load_checkpoint(start).fingerprint
        start = output
    (archive,) = (tmp_path / "tuned.work").glob("*/tokens")
    assert read_block_archive(archive).block_vectors.shape[1] == 0  # none was computed
    embedded = tmp_path / "v.npz"
    assert longmatch("embed", corpus, "-o", embedded, "--checkpoint", start).status == 0
    vectors = read_embedded_corpus(embedded).vectors
    assert vectors.shape == (24, 32)
    data = tmp_path / "data"
    assert longmatch("index", corpus, "--checkpoint", start, "--data", data).status == 0
    scores = longmatch(
        "evaluate", corpus / "corpus.jsonl", corpus / "qrels.tsv", "--checkpoint", start
    )
    assert scores.status == 0, scores.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trained": "frozen", "level": ""}, "takes stored block vectors"),
        ({"level": "blocks = 2"}, "sentence_level.blocks is 2, under the 8 of max_blocks"),
        ({"objective": 'kind = "sp"'}, 'objective "sp" takes vectors of lone blocks'),
    ],
)
def test_a_recipe_of_another_architecture_is_refused(
    longmatch: Run,
    corpus: Path,
    tiny_ernie_doc: Path,
    tmp_path: Path,
    changes: dict[str, str],
    message: str,
) -> None:
    recipe = write(tmp_path / "r.toml", **changes)
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", tmp_path / "t")
    answer = longmatch(*train, "--checkpoint", tiny_ernie_doc)
    assert answer.status != 0
    assert "RECIPE: " in answer.err
    assert message in " ".join(answer.err.split())
    assert not (tmp_path / "t.work").exists()


def test_a_smith_learns_no_order_of_segments(
    longmatch: Run, corpus: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    recipe = write(tmp_path / "r.toml", objective=PRETRAINING)
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", tmp_path / "t")
    answer = longmatch(*train, "--checkpoint", tiny_checkpoint)
    assert answer.status != 0
    assert "pretrains a recurrent encoder" in " ".join(answer.err.split())


def test_the_weights_of_another_architecture_do_not_fit(
    longmatch: Run, corpus: Path, tiny_ernie_doc: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    mixed = Path(shutil.copytree(tiny_ernie_doc, tmp_path / "mixed"))
    shutil.copy(tiny_checkpoint / "config.json", mixed / "config.json")
    answer = longmatch("embed", corpus, "-o", tmp_path / "v.npz", "--checkpoint", mixed)
    assert answer.status != 0
    assert "config.json" in answer.err
    assert "changed" in answer.err
