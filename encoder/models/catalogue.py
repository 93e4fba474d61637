"""The architectures there are, by the name that recipes and checkpoints give them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from encoder.models import colde, smith
from encoder.models.colde import Colde, ColdeConfig
from encoder.models.smith import Smith, SmithConfig

Model = Smith | Colde
ModelConfig = SmithConfig | ColdeConfig

CONFIGS: Mapping[str, Callable[..., ModelConfig]] = MappingProxyType(
    {"smith": SmithConfig, "colde": ColdeConfig}
)


def new_model(config: ModelConfig) -> Model:
    """Make a model with random weights."""
    return Smith(config) if isinstance(config, SmithConfig) else Colde(config)


def begin_as_mean(model: Model) -> None:
    """Let the document vector begin as the normalised mean of the block vectors.

    Raises:
        ValueError: the configuration has no mean in it, or the sizes differ.
    """
    if isinstance(model, Smith):
        smith.begin_as_mean(model.document_encoder)
    else:
        colde.begin_as_mean(model.document_encoder)
