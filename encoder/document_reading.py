"""One document while a recurrent encoder reads it: segment after segment, once or twice.

A step reads one segment together with the memory that the segments before it left, whose size does
not depend on the document (the ERNIE-Doc paper, sections 3.2 and 3.3). Steps of one document follow
one another, in any threads; different documents are read at the same time.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.errors import CheckpointError

# The step graph: its inputs by name -> block vectors [1, H], memory, and mask of the memory.
Step = Callable[[Mapping[str, Float32 | Int64]], Sequence[Float32 | Int64]]


class DocumentReading:
    """The state of one document that is being read.

    Attributes:
        vectors: [S, H] block vectors; a row is final once its segment was read in the last phase.
        passes: how often every segment is read.
    """

    def __init__(self, checkpoint: Checkpoint, step: Step, blocks: Sequence[Sequence[int]]) -> None:
        """Prepare to read; nothing is computed yet.

        Args:
            checkpoint: of a recurrent encoder.
            step: runs its step graph.
            blocks: token ids of each segment of the document, without special tokens.
        """
        memory = checkpoint.segment_memory
        if memory is None:
            raise CheckpointError(f"checkpoint {checkpoint.name} reads each block by itself")
        longest = max(map(len, blocks), default=0) + 2
        if longest > checkpoint.block_length:
            raise ValueError(
                f"a segment of {longest} tokens, special tokens included: checkpoint "
                f"{checkpoint.name} reads at most {checkpoint.block_length}"
            )
        self._checkpoint = checkpoint
        self._step = step
        self._blocks = blocks
        self._states: Float32 | Int64 = np.zeros(
            (memory.layers, 1, memory.length, checkpoint.block_dimension), dtype=np.float32
        )
        self._mask: Float32 | Int64 = np.zeros((1, memory.length), dtype=np.int64)
        self.passes = memory.passes
        self._left = memory.passes * len(blocks)
        self.vectors: Float32 = np.empty((len(blocks), checkpoint.block_dimension), np.float32)

    @property
    def done(self) -> bool:
        """Whether every segment was read in every phase."""
        return self._left == 0

    def advance(self) -> None:
        """Read the next segment on the calling thread."""
        if self.done:
            raise ValueError("the document has been read")
        place = -self._left % len(self._blocks)
        first, last = self._checkpoint.start_token, self._checkpoint.end_token
        ids = np.array([[first, *self._blocks[place], last]], dtype=np.int64)
        vector, self._states, self._mask = self._step(
            {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "memory": self._states,
                "memory_mask": self._mask,
            }
        )
        self.vectors[place] = vector[0]
        self._left -= 1

    def read(self) -> Float32:
        """Read all that is left, and return the block vectors [S, H]."""
        while not self.done:
            self.advance()
        return self.vectors
