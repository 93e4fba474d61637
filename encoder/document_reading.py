"""Reading a document with a recurrent encoder: segment after segment, once or twice.

A step reads one segment together with the memory that the segments before it left, whose size does
not depend on the document (the ERNIE-Doc paper, sections 3.2 and 3.3).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.errors import CheckpointError

# The step graph: its inputs by name -> block vectors [1, H], memory, and mask of the memory.
Step = Callable[[Mapping[str, Float32 | Int64]], Sequence[Float32 | Int64]]


def read_segments(checkpoint: Checkpoint, step: Step, blocks: Sequence[Sequence[int]]) -> Float32:
    """Read the segments of a document on the calling thread: their block vectors [S, H].

    Args:
        checkpoint: of a recurrent encoder.
        step: runs its step graph.
        blocks: token ids of each segment, without special tokens.

    Raises:
        CheckpointError: the encoder is not recurrent.
        ValueError: a segment is longer than the encoder reads.
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
    vectors = np.empty((len(blocks), checkpoint.block_dimension), dtype=np.float32)
    shape = (memory.layers, 1, memory.length, checkpoint.block_dimension)
    states: Float32 | Int64 = np.zeros(shape, dtype=np.float32)
    mask: Float32 | Int64 = np.zeros((1, memory.length), dtype=np.int64)
    for _ in range(memory.passes):  # the vectors of the last pass stay
        for place, block in enumerate(blocks):
            ids = np.array([[checkpoint.start_token, *block, checkpoint.end_token]], dtype=np.int64)
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            vector, states, mask = step({**inputs, "memory": states, "memory_mask": mask})
            vectors[place] = vector[0]
    return vectors
