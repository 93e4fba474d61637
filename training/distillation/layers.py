"""A model with some layers of the sentence level of another: where distillation begins."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from encoder.models.architecture import EncoderConfig
from training.errors import TrainingRecipeError

_LAYER = re.compile(r"^block_encoder\.layers\.(\d+)\.")


def config_with_layers(config: EncoderConfig, kept: Sequence[int]) -> EncoderConfig:
    """Return a configuration whose sentence level has as many layers as are kept.

    Args:
        config: of the model that they are taken from.
        kept: numbers of layers, from 0, ascending.

    Raises:
        TrainingRecipeError: the sentence level has no such layer, or none at all.
    """
    if "sentence_layers" not in {field.name for field in fields(config)}:
        raise TrainingRecipeError(
            "sentence_level.kept_layers: this architecture has no Transformer layers to choose from"
        )
    changed: Any = config
    layers = changed.sentence_layers
    if kept[-1] >= layers:
        raise TrainingRecipeError(
            f"sentence_level.kept_layers: {kept[-1]} is no layer of the {layers}, which are "
            f"numbered from 0"
        )
    with_fewer: EncoderConfig = replace(changed, sentence_layers=len(kept))
    return with_fewer


def weights_of_layers(weights: Mapping[str, Tensor], kept: Sequence[int]) -> dict[str, Tensor]:
    """Return the weights of a model, of its sentence level those of the layers that are kept.

    Args:
        weights: by the name of each parameter.
        kept: as in `config_with_layers`.
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
