"""Validation of pretraining: its own loss on held-out documents, the same question every time."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.block_archive import read_block_archive
from evaluation.encoded_corpus import keep_tokens
from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.command import Run
from tests.kit.corpora import write_topics
from training.collate import Reader, new_objective
from training.data import sampling
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import CorpusFiles
from training.data.pair_files import VALID
from training.data.sampling import Batch
from training.export.create import load_model
from training.jobs.validation import LOSS, held_out_batches, held_out_loss
from training.models.architecture import EncoderModel
from training.objectives import Objective, step_generator
from training.pretraining import PretrainingHead, pretraining_task
from training.recipe import TrainingRecipe
from training.run_files import read_curve

DOCUMENTS = 40
TABLES = [
    {"kind": "wp+sp", "masked_blocks": 1, "weight": 2.0},
    {"kind": "wp", "share": 0.5},
]
PRETRAIN = """
name = "tiny-pretrain"
steps = 6
documents = 4
max_blocks = 4
validation_interval = 2
checkpoint_interval = 2
[optimiser]
document_rate = 3e-3
sentence_rate = 3e-3
[sentence_level]
trained = "all"
blocks = 4
[[objective]]
kind = "{kind}"
"""


@pytest.fixture(scope="module")
def corpus(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingCorpus:
    folder = tmp_path_factory.mktemp("corpus")
    return read(tiny_checkpoint, write_topics(folder / "corpus.jsonl", DOCUMENTS))


def read(checkpoint: Path, path: Path, splits: Path | None = None) -> TrainingCorpus:
    start = load_checkpoint(checkpoint)
    encoded = keep_tokens(path, path.parent / "tokens", start, SilentProgress())
    (data,) = read_training_data([(CorpusFiles(path, splits=splits), encoded)])
    return data


def test_batches_are_of_held_out_documents_and_full(corpus: TrainingCorpus) -> None:
    held_out = {int(corpus.texts.rows[row]) for row in corpus.rows(VALID)}
    assert len(held_out) == 4
    for size, lengths in ((1, [1] * 4), (3, [3]), (4, [4]), (9, [4])):
        batches = held_out_batches([corpus], size)
        assert [len(batch) for batch in batches] == lengths
        rows = [part.row for batch in batches for part in batch]
        assert len(set(rows)) == len(rows)
        assert set(rows) <= held_out
        assert batches == held_out_batches([corpus], size)


def test_without_held_out_documents_there_is_nothing_to_stop_by(
    corpus: TrainingCorpus, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    path = write_topics(tmp_path / "corpus.jsonl", 4)
    splits = tmp_path / "splits.tsv"
    splits.write_text("".join(f"d{number}\ttrain\n" for number in range(4)))
    with pytest.raises(CorpusError, match="the validation part has none"):
        held_out_batches([read(tiny_checkpoint, path, splits)], 4)


def test_the_loss_is_the_weighted_sum_of_the_means_and_repeats(
    corpus: TrainingCorpus, tiny_checkpoint: Path
) -> None:
    start = load_checkpoint(tiny_checkpoint)
    table = {
        "name": "tiny", "steps": 1, "documents": 2, "max_blocks": 4, "objective": TABLES,
        "sentence_level": {"trained": "all", "blocks": 4},
    }  # fmt: skip
    recipe, model = TrainingRecipe.parse(table), load_model(start)
    reader = Reader([corpus.texts.archive], start, 4, trained_blocks=4)
    batches = held_out_batches([corpus], 2)
    made: list[Objective[EncoderModel]] = [
        new_objective(objective, lambda _: Batch(()), reader, model.config, 3)
        for objective in recipe.objectives
    ]
    measure = held_out_loss(recipe, made, batches, reader)
    with torch.no_grad():
        found = measure(model)
        assert measure(model) == found
        by_hand = []
        for number, parts in enumerate(batches):
            head, random = made[0].head, step_generator(0, 0, 1, number)
            assert isinstance(head, PretrainingHead)
            losses = pretraining_task(reader.batch(parts, random), head, random)(model)
            assert losses.keys() == {"words", "blocks"}
            by_hand.append(sum(loss.item() for loss in losses.values()))
    parts_of = found.parts
    assert parts_of["wp+sp"] == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert parts_of["wp+sp"] == pytest.approx(parts_of["wp+sp.words"] + parts_of["wp+sp.blocks"])
    assert found.figure == pytest.approx(2 * parts_of["wp+sp"] + parts_of["wp"])
    with torch.no_grad():
        model.block_encoder.token_embedding.weight.mul_(3)
        assert measure(model).figure != pytest.approx(found.figure, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wp+sp", "reorder"])
def test_pretraining_neither_encodes_nor_finds_neighbours(
    longmatch: Run,
    tiny_checkpoint: Path,
    tiny_ernie_doc: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing of a corpus is encoded or compared before pretraining")

    monkeypatch.setattr(OnnxEncoder, "encode_block_vectors", refuse)
    monkeypatch.setattr(sampling, "find_neighbours", refuse)
    write_topics(tmp_path / "corpus.jsonl", DOCUMENTS)
    recipe = tmp_path / "pretrain.toml"
    recipe.write_text(PRETRAIN.format(kind=kind))
    start = tiny_ernie_doc if kind == "reorder" else tiny_checkpoint
    command = [
        *("lab", "train", recipe, "--corpus", tmp_path / "corpus.jsonl", "-o", tmp_path / "out"),
    ]
    answer = longmatch(*command, "--checkpoint", start, "--precision", "fp32")
    assert answer.status == 0, answer.err
    report = json.loads((tmp_path / "out" / "training" / "report.json").read_text())
    curve = read_curve(tmp_path / "out" / "training" / "curve.jsonl")
    losses = {record["step"]: record["validation"] for record in curve if "validation" in record}
    assert list(losses) == [0, 2, 4, 6]
    assert report["figure"] == LOSS
    assert report["before"] == losses[0]
    assert report["best"] == min(losses.values()) < losses[0]
    assert losses[report["best_step"]] == report["best"]
    assert f"{LOSS}: {report['before']:.4f} before, {report['best']:.4f} after" in answer.err
    parts = {"wp+sp": ("words", "blocks"), "reorder": ("words", "order")}[kind]
    for name in ("loss", "validation"):
        record = next(record for record in curve if f"{name}.{kind}" in record)
        of_parts = sum(record[f"{name}.{kind}.{part}"] for part in parts)
        assert of_parts == pytest.approx(record[f"{name}.{kind}"], rel=1e-5)
    (tokens,) = (tmp_path / "out.work").glob("*/tokens")
    assert read_block_archive(tokens).key.tokens_only
    assert not list((tmp_path / "out.work").glob("*/neighbours"))


def test_splits_without_validation_are_refused_at_once(longmatch: Run, tmp_path: Path) -> None:
    folder, recipe = tmp_path / "corpus", tmp_path / "pretrain.toml"
    folder.mkdir()
    write_topics(folder / "corpus.jsonl", 4)
    (folder / "splits.tsv").write_text("".join(f"d{number}\ttrain\n" for number in range(4)))
    recipe.write_text(PRETRAIN.format(kind="wp+sp"))
    answer = longmatch("lab", "train", recipe, "--corpus", folder, "-o", tmp_path / "out")
    assert answer.status == 2
    assert "--corpus: " in answer.err
    assert "splits.tsv: no document is in 'valid'" in answer.err
    assert not (tmp_path / "out.work").exists()
