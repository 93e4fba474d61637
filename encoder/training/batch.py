"""A batch of documents as tensors, made from one document's arrays after another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encoder.models.smith import Smith


@dataclass(frozen=True, slots=True)
class DocumentArrays:
    """What a step reads of one document.

    Attributes:
        block_vectors: float [S, H] the cached block vectors, at least one.
        term_features: float [F] of the term channel; None where the model has none.
        places: int [N] the blocks whose vectors are computed from their tokens in this step.
        tokens: N arrays of token ids, special tokens included: the tokens of those blocks.
    """

    block_vectors: NDArray[np.floating]
    term_features: NDArray[np.floating] | None = None
    places: Sequence[int] = ()
    tokens: Sequence[NDArray[np.integer]] = ()


@dataclass(frozen=True, slots=True)
class BlockTexts:
    """Sentence blocks of a batch that are read from their tokens.

    Attributes:
        documents: [N] the row of the batch that a block belongs to, ascending.
        places: [N] its place in that document.
        input_ids: [N, T] token ids.
        attention_mask: [N, T], 1 for a token and 0 for padding.
    """

    documents: Tensor
    places: Tensor
    input_ids: Tensor
    attention_mask: Tensor

    def to(self, device: torch.device) -> "BlockTexts":
        """Return it on a device."""
        return BlockTexts(
            self.documents.to(device),
            self.places.to(device),
            self.input_ids.to(device),
            self.attention_mask.to(device),
        )


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Documents as the document level reads them.

    Attributes:
        block_vectors: [D, S, H] cached block vectors, 0 in padding.
        block_mask: [D, S], 1 for a block and 0 for padding.
        term_features: [D, F], or None for a model without a term channel.
        texts: blocks whose cached vectors give way to computed ones, or None.
    """

    block_vectors: Tensor
    block_mask: Tensor
    term_features: Tensor | None = None
    texts: BlockTexts | None = None

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.block_mask)

    def to(self, device: torch.device) -> "DocumentBatch":
        """Return it on a device."""
        return DocumentBatch(
            self.block_vectors.to(device),
            self.block_mask.to(device),
            None if self.term_features is None else self.term_features.to(device),
            None if self.texts is None else self.texts.to(device),
        )


def collate(documents: Sequence[DocumentArrays], padding_token: int = 0) -> DocumentBatch:
    """Pad the arrays of documents to one batch.

    Args:
        documents: at least one; all with terms, or none.
        padding_token: token id of padding.

    Raises:
        ValueError: no document, a document without a block, or terms of some documents only.
    """
    if not documents or any(len(document.block_vectors) == 0 for document in documents):
        raise ValueError("a batch takes at least one document, and each at least one block")
    length = max(len(document.block_vectors) for document in documents)
    width = documents[0].block_vectors.shape[1]
    vectors = np.zeros((len(documents), length, width), np.float32)
    mask = np.zeros((len(documents), length), np.float32)
    for row, document in enumerate(documents):
        vectors[row, : len(document.block_vectors)] = document.block_vectors
        mask[row, : len(document.block_vectors)] = 1.0
    terms = _collate_terms(documents)
    texts = _collate_texts(documents, padding_token)
    return DocumentBatch(torch.from_numpy(vectors), torch.from_numpy(mask), terms, texts)


def split(batch: DocumentBatch, chunk: int) -> list[DocumentBatch]:
    """Cut a batch into batches of at most `chunk` documents, as wide as the whole."""
    parts = []
    for start in range(0, len(batch), chunk):
        part = slice(start, start + chunk)
        texts = batch.texts
        if texts is not None:
            chosen = (texts.documents >= start) & (texts.documents < start + chunk)
            texts = BlockTexts(
                texts.documents[chosen] - start,
                texts.places[chosen],
                texts.input_ids[chosen],
                texts.attention_mask[chosen],
            )
        parts.append(
            DocumentBatch(
                batch.block_vectors[part],
                batch.block_mask[part],
                None if batch.term_features is None else batch.term_features[part],
                texts,
            )
        )
    return parts


def block_vectors(model: Smith, batch: DocumentBatch) -> Tensor:
    """Return the block vectors [D, S, H]: cached ones, and computed ones where there is text."""
    texts = batch.texts
    if texts is None or len(texts.documents) == 0:
        return batch.block_vectors
    computed = model.block_encoder(texts.input_ids, texts.attention_mask)  # [N, H]
    return batch.block_vectors.index_put(
        (texts.documents, texts.places), computed.to(batch.block_vectors.dtype)
    )


def encode(model: Smith, batch: DocumentBatch) -> Tensor:
    """Return the document vectors [D, dimension], of unit norm, in float32."""
    vectors: Tensor = model.document_encoder(
        block_vectors(model, batch), batch.block_mask, batch.term_features
    )
    return vectors.float()


def _collate_terms(documents: Sequence[DocumentArrays]) -> Tensor | None:
    features = [d.term_features for d in documents if d.term_features is not None]
    if not features:
        return None
    if len(features) != len(documents):
        raise ValueError("a batch takes documents with terms or documents without, not both")
    return torch.from_numpy(np.stack(features).astype(np.float32))


def _collate_texts(documents: Sequence[DocumentArrays], padding_token: int) -> BlockTexts | None:
    tokens = [block for document in documents for block in document.tokens]
    if not tokens:
        return None
    rows = [row for row, document in enumerate(documents) for _ in document.places]
    places = [place for document in documents for place in document.places]
    length = max(len(block) for block in tokens)
    input_ids = np.full((len(tokens), length), padding_token, np.int64)
    mask = np.zeros((len(tokens), length), np.int64)
    for index, block in enumerate(tokens):
        input_ids[index, : len(block)] = block
        mask[index, : len(block)] = 1
    return BlockTexts(
        torch.tensor(rows),
        torch.tensor(places),
        torch.from_numpy(input_ids),
        torch.from_numpy(mask),
    )
