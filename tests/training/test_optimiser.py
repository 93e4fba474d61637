"""Rates rise, fall, and reach zero after the last step only; only matrices decay."""

from collections.abc import Callable

import pytest
import torch

from encoder.models.smith import Smith
from training.loop import (
    choose_trained,
    new_optimiser,
    rate_share,
    set_rates,
    trained_parameters,
)
from training.objectives import ModelTask, Objective, Temperature
from training.recipe import OptimiserRecipe, SentenceLevelRecipe


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("linear", [1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1 / 3, 2 / 3, 1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_rates_run_as_the_recipe_says(decay: str, expected: list[float]) -> None:
    recipe = OptimiserRecipe(warm_up=2, decay=decay)
    shares = [rate_share(step, 6, recipe) for step in range(1, 7)]
    assert shares == pytest.approx(expected, abs=1e-6)


def test_a_run_may_be_all_warm_up() -> None:
    shares = [rate_share(step, 3, OptimiserRecipe(warm_up=9)) for step in (1, 2, 3)]
    assert shares == pytest.approx([0.1, 0.2, 0.3])


def _no_task(generator: torch.Generator) -> ModelTask:
    raise NotImplementedError


def test_matrices_decay_and_each_level_has_its_rate(tiny_model: Callable[..., Smith]) -> None:
    model = tiny_model()
    choose_trained(model, SentenceLevelRecipe(trained="all", blocks=1))
    objectives = [Objective("o", 1.0, _no_task, Temperature("learned"))]
    trained = trained_parameters(model, objectives)
    recipe = OptimiserRecipe(document_rate=0.5, sentence_rate=0.25, weight_decay=0.1, epsilon=1e-6)
    optimiser = new_optimiser(model, objectives, trained, recipe)
    assert {(g["betas"], g["eps"]) for g in optimiser.param_groups} == {((0.9, 0.999), 1e-6)}
    set_rates(optimiser, 0.5)
    names = {id(parameter): name for name, parameter in trained.items()}
    found = {
        names[id(parameter)]: (group["lr"], group["weight_decay"])
        for group in optimiser.param_groups
        for parameter in group["params"]
    }
    assert found.keys() == trained.keys()
    assert found["encoder.document_encoder.projection.weight"] == (0.25, 0.1)
    assert found["encoder.document_encoder.projection.bias"] == (0.25, 0.0)
    assert found["encoder.document_encoder.position_embedding.weight"] == (0.25, 0.0)
    assert found["encoder.block_encoder.projection.weight"] == (0.125, 0.1)
    assert found["encoder.block_encoder.embedding_norm.weight"] == (0.125, 0.0)
    assert found["head.o.logarithm"] == (0.25, 0.0)
