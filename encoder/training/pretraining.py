"""Pretraining: masked words (WP) and masked sentence blocks (SP), SMITH section 4.2.

WP+SP (equation 7) is a recipe with both objectives at weight 1. The heads belong to training: a
serving checkpoint has nothing of them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder.models.catalogue import Model, ModelConfig
from encoder.models.smith import Smith
from encoder.training.batch import BlockTexts, DocumentBatch, block_vectors
from encoder.training.losses import masked_block_prediction, masked_word_prediction


class WordHead(nn.Module):
    """What BERT puts on a masked place before the vocabulary, whose vectors are the input's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))

    def forward(self, states: Tensor) -> Tensor:
        """Transform states [N, H] -> [N, H]."""
        result: Tensor = self.norm(F.gelu(self.transform(states)))
        return result


class BlockHead(nn.Module):
    """The learned vector that stands in the place of a masked sentence block (section 4.2.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # As long as the unit vectors it stands among: it must not outshout them.
        self.masked_block = nn.Parameter(F.normalize(torch.randn(config.hidden_size), dim=0))

    def forward(self, vectors: Tensor, masked: Tensor) -> Tensor:
        """Put it into block vectors [D, S, H] wherever masked [D, S] is true."""
        return torch.where(masked[:, :, None], self.masked_block.to(vectors.dtype), vectors)


def word_loss(model: Model, head: WordHead, texts: BlockTexts, words: Tensor) -> Tensor:
    """Masked word prediction over text.

    Args:
        model: whose sentence level is trained.
        head: of this objective.
        texts: sentence blocks with hidden words, [N, T].
        words: [N, T] the token ids to predict, -1 where there is nothing to predict.

    Returns:
        [] loss, the mean over the masked words; 0 where none is masked.
    """
    states = model.block_encoder.token_states(texts.input_ids, texts.attention_mask)  # [N, T, H]
    chosen = words >= 0
    if not chosen.any():
        return states.sum() * 0.0
    embedding = model.block_encoder.token_embedding.weight
    return masked_word_prediction(head(states[chosen]), embedding, head.bias, words[chosen])


def block_loss(model: Model, head: BlockHead, batch: DocumentBatch, masked: Tensor) -> Tensor:
    """Masked sentence block prediction, over cached block vectors or over text.

    Args:
        model: whose document level is trained, and its sentence level where the batch has text.
        head: of this objective.
        batch: documents.
        masked: [D, S] bool, the blocks to predict.

    Returns:
        [] loss, the mean over the masked blocks; 0 where none is masked.

    Raises:
        TypeError: the architecture has no states of blocks.
    """
    if not isinstance(model, Smith):
        raise TypeError("masked sentence blocks need the document level of SMITH")
    vectors = block_vectors(model, batch)  # [D, S, H]
    states = model.document_encoder.block_states(head(vectors, masked), batch.block_mask)
    if not masked.any():
        return states.sum() * 0.0
    return masked_block_prediction(states[masked], vectors[masked].to(states.dtype))
