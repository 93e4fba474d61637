"""Which parameters are trained, at which learning rates, on which schedule."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from encoder.models.architecture import TrainableModel
from training.errors import TrainingRecipeError
from training.objectives import Objective
from training.recipe_tables.settings import OptimiserRecipe, SentenceLevelRecipe

_TERM_CHANNEL = "encoder.document_encoder.term"


def choose_trained(model: TrainableModel, level: SentenceLevelRecipe) -> None:
    """Enable gradients of the head, and of the token encoder as the recipe says.

    Raises:
        TrainingRecipeError: the sentence level has fewer layers than should be trained.
    """
    reader = model.token_encoder
    layers = reader.layers
    if level.layers > len(layers):
        raise TrainingRecipeError(
            f"sentence_level.layers is {level.layers}, and the sentence level has {len(layers)}"
        )
    model.requires_grad_(True)
    reader.requires_grad_(level.trained == "all")
    if level.trained == "last":
        for layer in reader.last_layers(level.layers):
            layer.requires_grad_(True)


def trained_parameters(
    model: TrainableModel, objectives: Sequence[Objective[Any]]
) -> dict[str, nn.Parameter]:
    """Return the trained parameters: `encoder.…` of the model, `head.<objective>.…` of heads."""
    modules = {"encoder": model} | {f"head.{o.name}": o.head for o in objectives}
    return {
        f"{owner}.{name}": parameter
        for owner, module in modules.items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def new_optimiser(
    model: TrainableModel,
    objectives: Sequence[Objective[Any]],
    trained: Mapping[str, nn.Parameter],
    recipe: OptimiserRecipe,
) -> torch.optim.AdamW:
    """Make AdamW with a rate for each level; each group keeps its own as `full_rate`."""
    modules = [m for root in (model, *(o.head for o in objectives)) for m in root.modules()]
    decaying = {id(module.weight) for module in modules if isinstance(module, nn.Linear)}
    sentence_level = {id(parameter) for parameter in model.token_encoder.parameters()}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        rate = recipe.document_rate
        if id(parameter) in sentence_level:
            rate = recipe.sentence_rate
        elif name.startswith(_TERM_CHANNEL):
            rate = recipe.term_rate
        decay = recipe.weight_decay if id(parameter) in decaying else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "full_rate": rate, "weight_decay": decay}
            for (rate, decay), parameters in groups.items()
        ],
        betas=recipe.betas,
        eps=recipe.epsilon,
        fused=True,
    )


def rate_share(step: int, steps: int, recipe: OptimiserRecipe) -> float:
    """Return the share of the full rates in a step, counted from 1 to `steps`."""
    if step <= recipe.warm_up:
        return step / (recipe.warm_up + 1)
    left = (steps - step + 1) / max(1, steps - recipe.warm_up)
    return left if recipe.decay == "linear" else (1 - math.cos(math.pi * left)) / 2


def set_rates(optimiser: torch.optim.Optimizer, share: float) -> None:
    """Set the rate of each group to a share of its full rate."""
    for group in optimiser.param_groups:
        group["lr"] = share * group["full_rate"]
