"""A model with some layers of the sentence level of another: where distillation begins."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from encoder.models.architecture import EncoderConfig
from training.errors import TrainingRecipeError
from training.recipe_tables.settings import SentenceLevelRecipe

_LAYER = re.compile(r"^block_encoder\.layers\.(\d+)\.")


def smaller_config(config: EncoderConfig, level: SentenceLevelRecipe) -> EncoderConfig:
    """Return the configuration of a student.

    Args:
        config: of the model that its layers are taken from.
        level: says which layers it keeps, and how many of these read groups of tokens.

    Raises:
        TrainingRecipeError: the sentence level has no such layers, or none that read groups.
    """
    changed: dict[str, int] = {}
    if level.kept_layers:
        changed["sentence_layers"] = len(level.kept_layers)
    if level.pooled_layers:
        changed |= {"pooled_layers": level.pooled_layers, "pooled_tokens": level.pooled_tokens}
    missing = changed.keys() - {field.name for field in fields(config)}
    if missing:
        names = {"sentence_layers": "kept_layers"}
        raise TrainingRecipeError(
            f"sentence_level.{names.get(min(missing), min(missing))}: this architecture has no "
            "such Transformer layers"
        )
    start: Any = config
    if level.kept_layers and level.kept_layers[-1] >= start.sentence_layers:
        raise TrainingRecipeError(
            f"sentence_level.kept_layers: {level.kept_layers[-1]} is no layer of the "
            f"{start.sentence_layers}, which are numbered from 0"
        )
    try:
        smaller: EncoderConfig = replace(start, **changed)
    except ValueError as error:
        raise TrainingRecipeError(f"sentence_level: {error}") from error
    return smaller


def weights_of_layers(weights: Mapping[str, Tensor], kept: Sequence[int]) -> dict[str, Tensor]:
    """Return the weights of a model, of its sentence level those of the layers that are kept.

    Args:
        weights: by the name of each parameter.
        kept: numbers of layers, from 0, ascending.
    """
    place_of = {layer: place for place, layer in enumerate(kept)}
    chosen = {}
    for name, tensor in weights.items():
        found = _LAYER.match(name)
        if found is None:
            chosen[name] = tensor
        elif (layer := int(found[1])) in place_of:
            rest = name[found.end() :]
            chosen[f"block_encoder.layers.{place_of[layer]}.{rest}"] = tensor
    return chosen
