"""An architecture of a few lines, made known by one entry of the registry."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.checkpoint import load_checkpoint
from encoder.export.create import Recipe, create_checkpoint, load_model
from encoder.export.export import export_checkpoint
from encoder.golden import GOLDEN_TEXTS
from encoder.models.architecture import EncoderArchitecture, EncoderModel, TrainingInput
from encoder.models.layers import BlockEncoder, Pooling, masked_mean
from encoder.models.registry import ENCODERS, RERANKERS
from encoder.models.weights import load_bert_into
from encoder.onnx_encoder import OnnxEncoder
from encoder.terms.term_channel import open_term_channel
from encoder.tokenizer import BlockTokenizer
from training.batch import DocumentArrays, collate, encode
from training.errors import TrainingRecipeError
from training.loop import choose_trained
from training.recipe import SentenceLevelRecipe, parse_training_recipe
from training.term_channel import open_model


@dataclass(frozen=True, slots=True)
class ToyConfig:
    """A sentence level, and the mean of the block vectors."""

    vocabulary_size: int = 30_522
    block_length: int = 16
    max_blocks: int = 8
    hidden_size: int = 32
    intermediate_size: int = 64
    attention_heads: int = 2
    sentence_layers: int = 1
    dimension: int = 32
    pooling: Pooling = "mean"
    dropout: float = 0.1
    layer_norm_epsilon: float = 1e-12

    term_width: ClassVar[int] = 0
    max_sections: ClassVar[None] = None
    predicts_blocks: ClassVar[bool] = False


class ToyDocumentEncoder(nn.Module):
    def forward(self, block_vectors: Tensor, block_mask: Tensor, _: None = None) -> Tensor:
        return F.normalize(masked_mean(block_vectors, block_mask), dim=-1)


class Toy(EncoderModel):
    training_input: ClassVar[TrainingInput] = "term_features"

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.config = config
        self.block_encoder = BlockEncoder(config)
        self.document_encoder = ToyDocumentEncoder()


def is_the_mean(model: Toy) -> None:
    """The output is the mean of the blocks already."""


TOY = EncoderArchitecture(
    name="toy",
    config=ToyConfig,
    model=Toy,
    load_bert=lambda model, folder: load_bert_into(model.block_encoder, folder),
    begin_as_mean=is_the_mean,
)


@pytest.fixture
def recipe(tiny_recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setitem(ENCODERS, "toy", TOY)
    fields = tiny_recipe.model_dump() | {"name": "toy", "architecture": "toy"}
    return Recipe(**(fields | {"model": {"sentence_layers": 1}}))


def test_what_ships_is_registered_by_its_name() -> None:
    assert list(ENCODERS) == ["smith", "colde", "ernie-doc", "han", "dssm", "arc-i"]
    assert list(RERANKERS) == ["match-ignition"]
    assert all(name == one.name for name, one in (ENCODERS | RERANKERS).items())


@pytest.mark.slow
def test_an_entry_of_the_registry_is_created_exported_and_served(
    recipe: Recipe, tiny_bert: Path, tmp_path: Path
) -> None:
    created = create_checkpoint(recipe, str(tiny_bert), tmp_path / "toy")
    assert created.architecture == "toy"
    export_checkpoint(created, ["fp32", "int8"])
    checkpoint = load_checkpoint(tmp_path / "toy")
    encoder = OnnxEncoder(checkpoint, precision="fp32")
    encoder.warm_up()
    tokenizer = BlockTokenizer(checkpoint)
    documents = [tokenizer(text) for text in GOLDEN_TEXTS[:3]]
    encoded = encoder.encode(documents)
    means = np.stack([vectors.mean(0) for vectors in encoded.block_vectors])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    assert np.allclose(encoded.document_vectors, means, atol=1e-5)


def test_an_entry_of_the_registry_is_trained(
    recipe: Recipe, tiny_bert: Path, tmp_path: Path
) -> None:
    start = create_checkpoint(recipe, str(tiny_bert), tmp_path / "toy")
    table = {"name": "t", "steps": 1, "documents": 2, "objective": [{"kind": "halves"}]}
    training = parse_training_recipe(table)
    model = open_model(start, training, open_term_channel(start))
    choose_trained(model, SentenceLevelRecipe(trained="last", layers=1, blocks=1))
    vectors = np.random.default_rng(0).normal(size=(3, 32)).astype(np.float32)
    encoded = encode(model, collate([DocumentArrays(vectors), DocumentArrays(vectors[:1])]))
    assert torch.allclose(encoded.norm(dim=1), torch.ones(2))
    trained = {name for name, tensor in model.named_parameters() if tensor.requires_grad}
    assert "block_encoder.projection.weight" in trained
    assert "block_encoder.token_embedding.weight" not in trained


def test_what_an_architecture_lacks_is_refused(
    recipe: Recipe, tiny_bert: Path, tmp_path: Path
) -> None:
    start = create_checkpoint(recipe, str(tiny_bert), tmp_path / "toy")
    assert not load_model(start).config.term_width
    table = {"name": "t", "steps": 1, "documents": 2, "objective": [{"kind": "halves"}]}
    channel = open_term_channel(start)
    wider = replace(channel, vocabulary=replace(channel.vocabulary, buckets=7))
    with pytest.raises(TrainingRecipeError, match="a toy has no term channel"):
        open_model(start, parse_training_recipe(table), wider)
