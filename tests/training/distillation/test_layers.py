"""The layers that a distilled sentence level is made of."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from encoder.models.baselines import BaselineConfig
from encoder.models.smith import Smith
from training.distillation import smaller_config, weights_of_layers
from training.errors import TrainingRecipeError
from training.recipe import SentenceLevelRecipe


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


def test_an_architecture_without_such_layers_is_refused() -> None:
    with pytest.raises(TrainingRecipeError, match="kept_layers: this architecture has no such"):
        smaller_config(BaselineConfig(), level((0,)))


def test_pooled_layers_go_into_the_configuration(tiny_model: Callable[..., Smith]) -> None:
    start = replace(tiny_model().config, pooling="mean")
    made = smaller_config(start, level((1,), pooled_layers=1, pooled_tokens=4))
    assert made == replace(start, sentence_layers=1, pooled_layers=1, pooled_tokens=4)
    with pytest.raises(TrainingRecipeError, match="pooled_layers must be from 0 to the 2"):
        smaller_config(start, level(pooled_layers=3, pooled_tokens=4))
    with pytest.raises(TrainingRecipeError, match="pooled_layers take pooling"):
        smaller_config(replace(start, pooling="cls"), level(pooled_layers=1, pooled_tokens=4))
    with pytest.raises(TrainingRecipeError, match="pooled_layers: this architecture has no such"):
        smaller_config(BaselineConfig(), level(pooled_layers=1, pooled_tokens=4))
