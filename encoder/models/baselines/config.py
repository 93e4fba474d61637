"""The configuration that the baselines share."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class BaselineConfig:
    """Sizes of a baseline.

    Attributes:
        vocabulary_size: rows of the token embedding.
        block_length: tokens of a sentence block, special tokens included.
        max_blocks: sentence blocks that are read of a document.
        hidden_size: width of the token embedding and of a block vector (H).
        dimension: width of the document vector.
        dropout: share of activations dropped in training.
        layer_norm_epsilon: of the head that predicts masked words.
    """

    vocabulary_size: int = 30_522
    block_length: int = 64
    max_blocks: int = 64
    hidden_size: int = 256
    dimension: int = 256
    dropout: float = 0.1
    layer_norm_epsilon: float = 1e-12

    term_width: ClassVar[int] = 0
    max_sections: ClassVar[None] = None  # each section is a document of its own
    predicts_blocks: ClassVar[bool] = False
