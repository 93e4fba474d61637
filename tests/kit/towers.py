"""Both levels of an encoder in one call."""

from torch import Tensor

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
