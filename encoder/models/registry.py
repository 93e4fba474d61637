"""The architectures there are, by the name that recipes and checkpoints give them.

Those of `Model` turn a document into a vector. All of `Trainable` are trained by the one loop: the
reranker too, which reads two documents together and has no vector.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from encoder.models import colde, smith
from encoder.models.colde import Colde, ColdeConfig
from encoder.models.layers import BlockEncoder
from encoder.models.match_ignition import CrossEncoder, MatchIgnition
from encoder.models.smith import Smith, SmithConfig

Model = Smith | Colde
ModelConfig = SmithConfig | ColdeConfig
Trainable = Smith | Colde | MatchIgnition

CONFIGS: Mapping[str, Callable[..., ModelConfig]] = MappingProxyType(
    {"smith": SmithConfig, "colde": ColdeConfig}
)


def new_model(config: ModelConfig) -> Model:
    """Make a model with random weights."""
    return Smith(config) if isinstance(config, SmithConfig) else Colde(config)


def token_reader(model: Trainable) -> BlockEncoder | CrossEncoder:
    """Return what reads tokens: the sentence level; of a reranker all but its head."""
    return model.cross_encoder if isinstance(model, MatchIgnition) else model.block_encoder


def begin_as_mean(model: Model) -> None:
    """Let the document vector begin as the normalised mean of the block vectors.

    Raises:
        ValueError: the configuration has no mean in it, or the sizes differ.
    """
    if isinstance(model, Smith):
        smith.begin_as_mean(model.document_encoder)
    else:
        colde.begin_as_mean(model.document_encoder)
