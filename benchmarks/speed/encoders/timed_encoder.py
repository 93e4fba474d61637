"""An encoder under test: texts to document vectors, in two steps that are timed apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import typer

from encoder.arrays import Float32, Int64
from encoder.block_selection import open_document_tokenizer
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import WHOLE, Checkpoint, with_reading_share
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer


@dataclass(frozen=True, slots=True)
class TimedEncoder:
    """An encoder under test.

    Attributes:
        name: as the table prints it.
        precision: of its weights.
        batch_size: blocks or chunks per model call; 0 for packed batches.
        tokenise: texts of D documents -> the input of `encode`.
        encode: -> Float32[D, dimension], unit norm.
        own_seconds: of the last call of `encode`, where it was measured in another process; its
            `tokenise` then only cuts texts, and does not count.
        reading_share: share of the sentence blocks of a document that it encodes.
    """

    name: str
    precision: str
    batch_size: int
    tokenise: Callable[[Sequence[str]], Any]
    encode: Callable[[Any], Float32]
    own_seconds: Callable[[], float] | None = None
    reading_share: float = 1.0


def open_longmatch(
    checkpoints: Sequence[Checkpoint], threads: int, shares: Sequence[float] = (WHOLE,)
) -> list[TimedEncoder]:
    """Open every precision of every checkpoint, with every reading share."""
    encoders: dict[str, TimedEncoder] = {}
    for checkpoint, share in product(checkpoints, shares):
        opened = with_reading_share(checkpoint, share)
        tokenizer = open_document_tokenizer(opened)
        for precision in opened.precisions:
            encoder = OnnxEncoder(opened, precision=precision, threads=threads)
            encoder.warm_up()
            read = "" if share == WHOLE else f", reading share {share:g}"
            name = f"{opened.name} {precision}{read}"
            if name in encoders:
                raise typer.BadParameter(f"{name} is there twice", param_hint="--checkpoint")
            encoders[name] = TimedEncoder(
                name=name,
                precision=precision,
                batch_size=0 if encoder.batch_tokens else 1,
                tokenise=partial(_sentence_blocks, tokenizer),
                encode=partial(_document_vectors, encoder),
                reading_share=share,
            )
    return list(encoders.values())


def mean_vectors(vectors: Float32, document: Int64) -> Float32:
    """Return the means Float32[D, H], unit norm, of chunk vectors by the document of each chunk."""
    sums = np.zeros((document[-1] + 1, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, document, vectors)
    means: Float32 = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return means


def _sentence_blocks(tokenizer: BlockTokenizer, texts: Sequence[str]) -> list[SentenceBlocks]:
    return [tokenizer(text) for text in texts]


def _document_vectors(encoder: OnnxEncoder, documents: Sequence[SentenceBlocks]) -> Float32:
    return encoder.encode(documents).document_vectors
