"""A batch of documents as tensors, made from one document's arrays after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from training.models.architecture import EncoderModel, OnDevice, Sections
from training.models.colde import Colde
from training.models.ernie_doc import ErnieDoc
from training.models.layers import BlockEncoder


@dataclass(frozen=True, slots=True)
class DocumentArrays:
    """What a step reads of one document.

    Attributes:
        block_vectors: float [S, H] the cached block vectors, at least one.
        term_features: float [F] of the term channel; None where the model has none.
        places: int [N] the blocks whose vectors are computed from their tokens in this step.
        tokens: N arrays of token ids, special tokens included: the tokens of those blocks.
        section: number of the section that it is of a document that is cut.
        sections: into how many; the others follow it in the batch, or go before it.
    """

    block_vectors: NDArray[np.floating]
    term_features: NDArray[np.floating] | None = None
    places: Sequence[int] = ()
    tokens: Sequence[NDArray[np.integer]] = ()
    section: int = 0
    sections: int = 1


@dataclass(frozen=True, slots=True)
class BlockTexts(OnDevice):
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


@dataclass(frozen=True, slots=True)
class DocumentBatch(OnDevice):
    """Documents as the document level reads them.

    Attributes:
        block_vectors: [D, S, H] cached block vectors, 0 in padding.
        block_mask: [D, S], 1 for a block and 0 for padding.
        term_features: [D, F], or None for a model without a term channel.
        texts: blocks whose cached vectors give way to computed ones, or None.
        sections: where the rows belong, if documents are cut into sections; each is a row.
    """

    block_vectors: Tensor
    block_mask: Tensor
    term_features: Tensor | None = None
    texts: BlockTexts | None = None
    sections: Sections | None = None


def collate(documents: Sequence[DocumentArrays], padding_token: int = 0) -> DocumentBatch:
    """Pad the arrays of documents to one batch.

    Args:
        documents: at least one; all with terms, or none. Sections of a document follow one another.
    """
    vectors = [torch.from_numpy(d.block_vectors.astype(np.float32)) for d in documents]
    return DocumentBatch(
        block_vectors=pad_sequence(vectors, batch_first=True),
        block_mask=pad_sequence([torch.ones(len(some)) for some in vectors], batch_first=True),
        term_features=_collate_terms(documents),
        texts=_collate_texts(documents, padding_token),
        sections=_collate_sections(documents),
    )


def split(documents: Sequence[DocumentArrays], chunk: int) -> list[list[DocumentArrays]]:
    """Cut a batch of documents into batches of at most `chunk`.

    The sections of a document stay together: a document of more than `chunk` is a batch by itself.
    """
    parts: list[list[DocumentArrays]] = [[]]
    for document in documents:
        full = len(parts[-1]) + document.sections > chunk
        if full and document.section == 0 and parts[-1]:
            parts.append([])
        parts[-1].append(document)
    return parts


def block_vectors(model: EncoderModel, batch: DocumentBatch) -> Tensor:
    """Return the block vectors [D, S, H]: cached ones, and computed ones where there is text."""
    if batch.texts is None:
        return batch.block_vectors
    return put_computed(batch, encode_texts(model, batch))


def put_computed(batch: DocumentBatch, computed: Tensor) -> Tensor:
    """Return the block vectors [D, S, H], those of the texts of the batch being computed [N, H]."""
    texts = texts_of(batch)
    return batch.block_vectors.index_put(
        (texts.documents, texts.places), computed.to(batch.block_vectors.dtype)
    )


def encode(model: EncoderModel, batch: DocumentBatch) -> Tensor:
    """Return the document vectors [D, dimension], of unit norm, in float32.

    A document that is cut has one vector for each section; those of a CoLDE see each other.
    """
    if isinstance(model, ErnieDoc):
        read: Tensor = model(*as_documents(texts_of(batch)))
        return read.float()
    also = batch.sections if isinstance(model, Colde) else batch.term_features
    vectors: Tensor = model.document_encoder(block_vectors(model, batch), batch.block_mask, also)
    return vectors.float()


def encode_texts(model: EncoderModel, batch: DocumentBatch) -> Tensor:
    """Return the block vectors [N, H] of the blocks that are read from their tokens, in float32."""
    texts = texts_of(batch)
    vectors: Tensor = model.block_encoder(texts.input_ids, texts.attention_mask)
    return vectors.float()


def token_states(model: EncoderModel, texts: BlockTexts) -> Tensor:
    """Return the states [N, T, H] of the tokens of blocks.

    A recurrent model reads all blocks of each document for them.
    """
    if isinstance(model, ErnieDoc):
        states = torch.stack(model.segment_states(*as_documents(texts)), dim=1)  # [D, S, T, H]
        return states[texts.documents, texts.places]
    level = cast(BlockEncoder, model.block_encoder)
    return level.token_states(texts.input_ids, texts.attention_mask)


def texts_of(batch: DocumentBatch) -> BlockTexts:
    """Return the blocks that are read from their tokens."""
    if batch.texts is None:
        raise ValueError("the batch has no block to be read from its tokens")
    return batch.texts


def as_documents(texts: BlockTexts) -> tuple[Tensor, Tensor]:
    """Lay blocks out by document and place: all blocks of each, which a recurrent model reads.

    Returns:
        Token ids and mask, both [D, S, T]; where a document has no block, the mask is 0.
    """
    documents, places = texts.documents, texts.places
    size = (int(documents.max()) + 1, int(places.max()) + 1, texts.input_ids.shape[1])
    ids, mask = (
        tensor.new_zeros(size).index_put((documents, places), tensor)
        for tensor in (texts.input_ids, texts.attention_mask)
    )
    return ids, mask


def _collate_sections(documents: Sequence[DocumentArrays]) -> Sections | None:
    """Find the successor of each section: the next row, of the last section the first one."""
    if all(document.sections == 1 for document in documents):
        return None
    numbers = [document.section for document in documents]
    successors = [
        row + 1 if document.section + 1 < document.sections else row - document.section
        for row, document in enumerate(documents)
    ]
    return Sections(torch.tensor(numbers), torch.tensor(successors))


def _collate_terms(documents: Sequence[DocumentArrays]) -> Tensor | None:
    features = [d.term_features for d in documents if d.term_features is not None]
    return torch.from_numpy(np.stack(features).astype(np.float32)) if features else None


def _collate_texts(documents: Sequence[DocumentArrays], padding_token: int) -> BlockTexts | None:
    tokens = [torch.from_numpy(block) for document in documents for block in document.tokens]
    if not tokens:
        return None
    rows = [row for row, document in enumerate(documents) for _ in document.places]
    places = [place for document in documents for place in document.places]
    return BlockTexts(torch.tensor(rows), torch.tensor(places), *pad_tokens(tokens, padding_token))


def pad_tokens(blocks: Sequence[Tensor], padding_token: int) -> tuple[Tensor, Tensor]:
    """Return N blocks of token ids, special tokens included, and their mask: both [N, T]."""
    mask = pad_sequence([torch.ones_like(block) for block in blocks], batch_first=True)
    return pad_sequence(list(blocks), batch_first=True, padding_value=padding_token), mask
