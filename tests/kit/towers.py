"""Levels of an encoder in one call."""

import torch
from torch import Tensor
from torch.nn import functional as F

from training.models.architecture import EncoderModel, Sections
from training.models.ernie_doc import ErnieDoc


def encode_tokens(
    model: EncoderModel, input_ids: Tensor, attention_mask: Tensor, also: Sections | None = None
) -> Tensor:
    """Encode documents, [D, S, T] token ids and mask -> [D, dimension]; padding has no token."""
    if isinstance(model, ErnieDoc):
        encoded: Tensor = model(input_ids, attention_mask)
        return encoded
    vectors = model.block_encoder(input_ids.flatten(0, 1), attention_mask.flatten(0, 1))
    blocks = vectors.unflatten(0, input_ids.shape[:2])
    result: Tensor = model.document_encoder(blocks, attention_mask.amax(-1), also)
    return result


def segment_vectors(model: ErnieDoc, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the block vectors [D, S, H] of whole documents; any values in padding."""
    states = model.segment_states(input_ids, attention_mask)
    return F.normalize(torch.stack(states, dim=1)[:, :, 0], dim=-1)
