"""Distillation of a sentence level: its layers, its loss, and the command."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from encoder.alignment.space import AlignmentSpace, open_space, write_checkpoint_space
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index.search.score import DEFAULT_RULE, ChannelWeights, read_fusion, write_fusion
from tests.kit.command import Run
from tests.kit.corpora import write_topics
from training.batch import DocumentArrays, collate
from training.distillation import (
    AlignmentProjection,
    block_vector_losses,
    block_vectors_task,
    smaller_config,
    weights_of_layers,
)
from training.errors import TrainingRecipeError
from training.jobs.validation import LOSS
from training.models.colde import ColdeConfig
from training.models.smith import Smith
from training.recipe import SentenceLevelRecipe

RECIPE = """
name = "small"
steps = 12
documents = 8
max_blocks = 4
dropout = 0.0
validation_interval = 6
checkpoint_interval = 6
[optimiser]
sentence_rate = 3e-3
document_rate = 0.0
term_rate = 0.0
weight_decay = 0.0
[sentence_level]
trained = "all"
blocks = 3
kept_layers = [{kept}]
[[objective]]
kind = "{kind}"
"""

POOLED = "0, 1]\npooled_layers = 1\npooled_tokens = 4 # ["


def space_of(width: int, dimension: int) -> AlignmentSpace:
    random = np.random.default_rng(4)
    return AlignmentSpace(
        mean=random.normal(size=width).astype(np.float32),
        projection=random.normal(size=(width, dimension)).astype(np.float32),
        background=np.empty((0, dimension), np.int8),
        background_scales=np.empty(0, np.float32),
    )


def test_the_loss_is_one_less_the_cosines_in_both_spaces() -> None:
    torch.manual_seed(0)
    space = space_of(16, 5)
    student, teacher = F.normalize(torch.randn(2, 7, 16), dim=-1)
    found = block_vector_losses(student, teacher, AlignmentProjection(space))
    plain, aligned = [], []
    for mine, theirs in zip(student.numpy(), teacher.numpy(), strict=True):
        plain.append(1 - mine @ theirs)
        first, other = ((row - space.mean) @ space.projection for row in (mine, theirs))
        aligned.append(1 - first @ other / np.linalg.norm(first) / np.linalg.norm(other))
    assert found["vectors"].item() == pytest.approx(np.mean(plain), rel=1e-5)
    assert found["aligned"].item() == pytest.approx(np.mean(aligned), rel=1e-5)
    same = block_vector_losses(teacher, teacher, AlignmentProjection(space))
    assert [loss.item() for loss in same.values()] == pytest.approx([0, 0], abs=1e-6)


def test_blocks_are_compared_with_their_own_stored_vectors(
    tiny_model: Callable[..., Smith],
) -> None:
    """A model is its own teacher: the loss is 0 where vectors stand where they belong."""
    model = tiny_model().eval()
    random = np.random.default_rng(1)
    documents, stored = [], []
    for blocks in (4, 2, 3):
        tokens = [random.integers(5, 50, random.integers(3, 8)) for _ in range(blocks)]
        with torch.no_grad():
            vectors = [
                model.block_encoder(torch.tensor(t[None]), torch.ones(1, len(t)))[0].numpy()
                for t in tokens
            ]
        chosen = sorted(random.permutation(blocks)[:2].tolist())
        stored.append(np.array(vectors))
        read = [tokens[place] for place in chosen]
        documents.append(DocumentArrays(stored[-1], None, chosen, read))
    projection = AlignmentProjection(space_of(16, 5))
    losses = block_vectors_task(collate(documents), projection)(model)
    assert [loss.item() for loss in losses.values()] == pytest.approx([0, 0], abs=1e-5)
    turned = [
        DocumentArrays(vectors[::-1].copy(), None, document.places, document.tokens)
        for vectors, document in zip(stored, documents, strict=True)
    ]
    losses = block_vectors_task(collate(turned), projection)(model)
    assert losses["vectors"].item() > 0.1


def test_nothing_to_read_is_refused() -> None:
    document = DocumentArrays(np.ones((2, 16), np.float32))
    with pytest.raises(ValueError, match="token"):
        block_vectors_task(collate([document]), AlignmentProjection(space_of(16, 5)))


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "layers", "pooled"), [("0", 1, 0), (POOLED, 2, 1)])
def test_a_checkpoint_is_made_smaller_from_texts_alone(
    longmatch: Run, tiny_checkpoint: Path, tmp_path: Path, kept: str, layers: int, pooled: int
) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path / "start")
    start = load_checkpoint(tmp_path / "start")
    width = start.block_dimension
    write_checkpoint_space(start.directory, space_of(width, 5))
    rule = replace(DEFAULT_RULE, hybrid=ChannelWeights(1.0, 0.25, 0.125))
    write_fusion(load_checkpoint(start.directory), rule)
    corpus = write_topics(tmp_path / "corpus.jsonl", 40)
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE.format(kept=kept, kind="distil-blocks"))
    out = tmp_path / "out"
    command = (
        *("lab", "train", recipe, "--corpus", corpus, "-o", out, "--checkpoint", start.directory),
    )
    answer = longmatch(*command, "--precision", "fp32")
    assert answer.status == 0, answer.err
    report = json.loads((out / "training" / "report.json").read_text())
    assert report["figure"] == LOSS
    assert report["best"] < 0.8 * report["before"]
    made = load_checkpoint(out)
    assert (start.model["sentence_layers"], made.model["sentence_layers"]) == (2, layers)
    assert made.model["pooled_layers"] == pooled
    assert made.fingerprint != start.fingerprint
    assert ("terms.npz" in made.files) == ("terms.npz" in start.files)
    assert read_fusion(made) == rule
    assert open_space(made).projection.tolist() == space_of(width, 5).projection.tolist()
    blocks = [[7, 8, 9, 10], [20, 21, 22]]
    teacher, student = (
        OnnxEncoder(each, precision="fp32").encode_blocks(blocks) for each in (start, made)
    )
    assert (teacher * student).sum(1).min() > 0.5


@pytest.mark.parametrize(
    ("kept", "kind", "message"),
    [
        ("0, 2", "distil-blocks", "kept_layers: 2 is no layer of the 2"),
        ("1, 0", "distil-blocks", "kept_layers must ascend"),
        ("0", "wp", 'kept_layers goes with the objective "distil-blocks" alone'),
        ("0]\npooled_layers = [1", "distil-blocks", "pooled_layers"),
        (
            "0]\npooled_tokens = 1\npooled_layers = 1 #[",
            "distil-blocks",
            "pooled_tokens is above 1",
        ),
    ],
)
def test_layers_that_cannot_be_kept_are_refused_before_the_work(
    longmatch: Run, tmp_path: Path, kept: str, kind: str, message: str
) -> None:
    corpus = write_topics(tmp_path / "corpus.jsonl", 40)
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE.format(kept=kept, kind=kind))
    answer = longmatch("lab", "train", recipe, "--corpus", corpus, "-o", tmp_path / "out")
    assert answer.status == 2
    assert message in answer.err
    assert not (tmp_path / "out.work").exists()


def level(kept: tuple[int, ...] = (), **fields: int) -> SentenceLevelRecipe:
    return SentenceLevelRecipe(trained="all", blocks=2, kept_layers=kept, **fields)


def test_kept_layers_follow_one_another(tiny_model: Callable[..., Smith]) -> None:
    torch.manual_seed(3)
    start = Smith(replace(tiny_model().config, sentence_layers=4))
    config = smaller_config(start.config, level((0, 3)))
    assert config == replace(start.config, sentence_layers=2)
    student = Smith(config)
    student.load_state_dict(weights_of_layers(start.state_dict(), (0, 3)))
    for place, layer in enumerate((0, 3)):
        given = start.block_encoder.layers[layer].state_dict()
        kept = student.block_encoder.layers[place].state_dict()
        assert all(tensor.equal(kept[name]) for name, tensor in given.items())
    embeddings = start.block_encoder.token_embedding.weight
    assert student.block_encoder.token_embedding.weight.equal(embeddings)
    documents = student.document_encoder.state_dict()
    assert all(t.equal(documents[n]) for n, t in start.document_encoder.state_dict().items())


def test_pooled_layers_go_into_the_configuration(tiny_model: Callable[..., Smith]) -> None:
    start = replace(tiny_model().config, pooling="mean")
    made = smaller_config(start, level((1,), pooled_layers=1, pooled_tokens=4))
    assert made == replace(start, sentence_layers=1, pooled_layers=1, pooled_tokens=4)
    with pytest.raises(TrainingRecipeError, match="pooled_layers must be from 0 to the 2"):
        smaller_config(start, level(pooled_layers=3, pooled_tokens=4))
    with pytest.raises(TrainingRecipeError, match="pooled_layers take pooling"):
        smaller_config(replace(start, pooling="cls"), level(pooled_layers=1, pooled_tokens=4))
    with pytest.raises(TrainingRecipeError, match="pooled_layers: unknown field"):
        smaller_config(ColdeConfig(), level(pooled_layers=1, pooled_tokens=4))
