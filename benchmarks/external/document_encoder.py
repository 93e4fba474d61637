"""A checkpoint as what other evaluations call a model: texts -> vectors, and nothing else."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from encoder.arrays import Float32
from encoder.checkpoint import load_checkpoint
from encoder.errors import EmptyTextError
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer

_BATCH = 64  # documents whose blocks are in memory at a time


class DocumentEncoder:
    """Encodes texts as whole documents; queries are encoded like them, without any prompt."""

    def __init__(
        self, checkpoint: Path, *, precision: str | None = None, threads: int | None = None
    ) -> None:
        """Open a checkpoint.

        Args:
            checkpoint: its directory.
            precision: by default, the best for the device.
            threads: by default one for each core.

        Raises:
            EncoderError: it cannot be opened.
        """
        self.checkpoint = load_checkpoint(checkpoint)
        self._tokenizer = BlockTokenizer(self.checkpoint)
        self._encoder = OnnxEncoder(self.checkpoint, precision=precision, threads=threads)

    @property
    def precision(self) -> str:
        """Of the graphs in use."""
        return self._encoder.precision

    @property
    def dimension(self) -> int:
        """Of the vectors."""
        return self._encoder.dimension

    def encode(self, texts: Sequence[str]) -> Float32:
        """Return vectors Float32[N, dimension] of unit norm; zero for a text without a token."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            rows, documents = [], []
            for row, text in enumerate(texts[start : start + _BATCH], start):
                try:
                    documents.append(self._tokenizer(text))
                except EmptyTextError:
                    continue
                rows.append(row)
            if rows:
                vectors[rows] = self._encoder.encode(documents).document_vectors
        return vectors
