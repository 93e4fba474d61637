"""What every baseline has."""

from pathlib import Path
from typing import ClassVar, NoReturn

from torch import Tensor, nn

from encoder.models.architecture import EncoderModel, TrainingInput
from encoder.models.layers import TokenEncoder
from encoder.models.weights import BertWeights


class Baseline(EncoderModel):
    """One tower of the Siamese pair: both levels, end to end."""

    training_input: ClassVar[TrainingInput] = "term_features"

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode documents from their tokens.

        Args:
            input_ids: [D, S, T] token ids, special tokens included.
            attention_mask: [D, S, T]; a block without a single token is padding.

        Returns:
            [D, dimension] document vectors of unit norm.
        """
        documents, blocks, _ = input_ids.shape
        vectors = self.block_encoder(input_ids.flatten(0, 1), attention_mask.flatten(0, 1))
        vectors = vectors.unflatten(0, (documents, blocks))  # [D, S, H]
        result: Tensor = self.document_encoder(vectors, attention_mask.amax(-1))
        return result


class Embedding(nn.Module):
    """The one part of a baseline that a BERT checkpoint has: a row for each token."""

    def __init__(self, token_embedding: nn.Embedding) -> None:
        super().__init__()
        self.token_embedding = token_embedding


def load_embedding(encoder: TokenEncoder, folder: Path) -> None:
    """Copy the token embedding of a BERT checkpoint.

    Raises:
        CheckpointError: the file is missing, or its sizes are not those of the embedding.
    """
    bert = BertWeights(folder)
    words = {"token_embedding.weight": bert["embeddings.word_embeddings.weight"]}
    bert.copy_into(Embedding(encoder.token_embedding), words)


def begin_as_mean(_: EncoderModel) -> NoReturn:
    """Refuse to begin as the mean of the block vectors.

    Raises:
        ValueError: always.
    """
    raise ValueError("begin_as_mean: a baseline has no document level that can begin so")
