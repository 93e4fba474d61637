"""The serving engine: sentence blocks -> block vectors -> document vector, by ONNX Runtime.

On a CPU each sentence block is one call on one thread, and several threads call concurrently. This
is as fast as batching, wastes nothing on padding, and is the only way to make dynamic int8
independent of the rest of a batch, because its activations share one scale over the whole tensor.
On a GPU the blocks of many documents are packed, sorted by length, into a few fixed shapes
(`encoder/device/`), and so are the block vectors of many documents. The thread that packs the next
call, and takes the last one apart, runs in parallel to the one that waits for the device.

A recurrent encoder reads the blocks of a document in order, once or twice, each by one call with a
memory of those before, whose size does not depend on the document (the ERNIE-Doc paper, sections
3.2 and 3.3). So it encodes whole documents: many at a time on a CPU, one on a GPU.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from encoder.checkpoint import CONFIG, SECTION_GRAPH, Checkpoint
from encoder.comparison.sections import SectionReader
from encoder.device.bound_graph import LANES, BoundGraph
from encoder.device.packing import document_calls, pad_documents, pad_rows
from encoder.device.providers import CPU, DEVICES
from encoder.encoder import Encoder, WarmRun
from encoder.errors import CheckpointError
from encoder.golden import check_parity, read_golden_batch
from encoder.onnx_session import OpenedGraphs, open_graphs, open_section_graph
from encoder.terms.term_channel import open_term_channel

DOCUMENT_BATCH_BLOCKS = 8_192  # of a packed call of the document level, padding included
# The step graph: its inputs by name -> block vectors [1, H], memory, and mask of the memory.
Step = Callable[[Mapping[str, Float32 | Int64]], Sequence[Float32 | Int64]]


class OnnxEncoder(Encoder):
    """An encoder of the graphs of a checkpoint."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        precision: str | None = None,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """Open the graphs of a checkpoint.

        Args:
            checkpoint: from `load_checkpoint`.
            precision: "int8", "fp16" or "fp32"; by default int8 on a CPU and fp16 on a GPU,
                or what the checkpoint has.
            providers: execution providers in the order of preference, "cuda" or
                "CUDAExecutionProvider"; by default CUDA if available, else the CPU.
            threads: by default one for each core.
            batch_tokens: of a packed call; by default 65,536 on a GPU and 0, one block a call, on
                a CPU.
        """
        self.checkpoint = checkpoint
        graphs = open_graphs(checkpoint, precision, providers, batch_tokens=batch_tokens)
        self._graphs: OpenedGraphs = graphs
        self._packing = graphs.packing
        device = DEVICES[graphs.provider]
        self._blocks = BoundGraph(graphs.block, checkpoint.block_dimension, device)
        self._documents = BoundGraph(graphs.document, checkpoint.dimension, device)
        self._sections = open_section_graph(checkpoint)
        self._terms = open_term_channel(checkpoint)
        self.precision = graphs.precision
        self.provider = graphs.provider
        self.threads = threads or (usable_cores() if graphs.provider == CPU else 1)
        self.recurrent = checkpoint.segment_memory is not None
        self.batch_tokens = graphs.packing.batch_tokens

    def encode_blocks(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Encode N sentence blocks on the calling thread: [N, block_dimension].

        A recurrent encoder takes all blocks of one document, in their order.
        """
        if self.recurrent:
            return read_segments(self.checkpoint, self._step, blocks)
        vectors = np.empty((len(blocks), self.checkpoint.block_dimension), dtype=np.float32)

        def encode(rows: Sequence[int]) -> None:
            ids, mask = self._packing.pad([blocks[row] for row in rows])
            inputs = {"input_ids": ids, "attention_mask": mask}
            if self.batch_tokens:
                self._blocks.run(inputs, vectors, rows)
            else:
                vectors[rows] = self._graphs.block.run(None, inputs)[0]

        self._run_calls(encode, self._packing.calls(blocks))
        return vectors

    def _step(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        found: list[NDArray[Any]] = self._graphs.block.run(None, dict(inputs))
        return found

    def encode_document(self, blocks: Sequence[Sequence[int]], block_vectors: Float32) -> Float32:
        """Encode one document of block vectors [S, block_dimension]: [dimension], unit norm.

        The words of all its blocks are counted.
        """
        if not len(block_vectors):
            raise ValueError("a document with no block has no vector")
        return self.combine(block_vectors, self.term_features(blocks))

    def encode_documents(
        self, blocks: Sequence[Sequence[Sequence[int]]], block_vectors: Sequence[Float32]
    ) -> Float32:
        """Encode D documents, as `encode_document`, with all threads or packed: [D, dimension]."""
        if not self.batch_tokens:
            return super().encode_documents(blocks, block_vectors)
        if not all(map(len, block_vectors)):
            raise ValueError("a document with no block has no vector")
        features = [self.term_features(block) for block in blocks]
        return self._combine_packed(block_vectors, features)

    def _combine_packed(
        self, block_vectors: Sequence[Float32], term_features: Sequence[Float32]
    ) -> Float32:
        """Run the document level on many documents: -> [D, dimension]."""
        vectors = np.empty((len(block_vectors), self.checkpoint.dimension), dtype=np.float32)
        most = self.checkpoint.max_blocks

        def combine(rows: Sequence[int]) -> None:
            packed, mask = pad_documents([block_vectors[row] for row in rows], most)
            inputs: dict[str, NDArray[Any]] = {"block_vectors": packed, "block_mask": mask}
            if len(term_features[rows[0]]):
                inputs["term_features"] = pad_rows(np.array([term_features[row] for row in rows]))
            self._documents.run(inputs, vectors, rows)

        sizes = [len(vector) for vector in block_vectors]
        self._run_calls(combine, document_calls(sizes, most, DOCUMENT_BATCH_BLOCKS))
        return vectors

    def _run_calls(
        self, run: Callable[[Sequence[int]], None], calls: Iterable[Sequence[int]]
    ) -> None:
        """Run calls of a graph, several packed ones at a time: one is filled, one computes."""
        waiting = list(calls)
        if self.batch_tokens and len(waiting) > 1:
            with ThreadPoolExecutor(LANES) as pool:
                list(pool.map(run, waiting))
        else:
            for rows in waiting:
                run(rows)

    def term_features(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Return the term features [F] of a document; F is 0 without a term channel."""
        return self._terms.features(blocks)

    def combine(self, block_vectors: Float32, term_features: Float32) -> Float32:
        """Run the document level: [S, block_dimension], [F] -> [dimension], unit norm."""
        mask = np.ones((1, len(block_vectors)), dtype=np.int64)
        inputs = {"block_vectors": block_vectors[None], "block_mask": mask}
        if len(term_features):
            inputs["term_features"] = term_features[None]
        vector: Float32 = self._graphs.document.run(None, inputs)[0][0]
        return vector

    @property
    def section_reader(self) -> SectionReader | None:
        """Itself where it has vectors of sections (CoLDE, section 3.2), else None."""
        return None if self._sections is None else self

    def section_vector(
        self, blocks: Float32, number: int, next_blocks: Float32, next_number: int
    ) -> Float32:
        """Encode a section: [dimension], unit norm.

        Args:
            blocks: [S, block_dimension] block vectors of the section.
            number: of the section in its document, from 0.
            next_blocks: [T, block_dimension] those of the next section; of the last one those of
                the first, which may be the same.
            next_number: of that section.
        """
        return self._read_section("section_vector", blocks, number, next_blocks, next_number)

    def chunk_attention(self, blocks: Float32, next_blocks: Float32) -> Float32 | None:
        """Return how much blocks attend to those of a next section, [S, T] (CoLDE, section 3.2).

        It is the mean over the heads, rows sum to 1; None where the model has no attention.
        """
        if self._sections is not None and "chunk_attention" not in self._sections.outputs:
            return None
        return self._read_section("chunk_attention", blocks, 0, next_blocks, 1)

    def _read_section(
        self, output: str, blocks: Float32, number: int, next_blocks: Float32, next_number: int
    ) -> Float32:
        if self._sections is None:
            raise CheckpointError(f"{self.checkpoint.directory}: has no {SECTION_GRAPH}")
        inputs = {
            "block_vectors": blocks.astype(np.float32, copy=False),
            "section": np.array(number),
            "next_block_vectors": next_blocks.astype(np.float32, copy=False),
            "next_section": np.array(next_number),
        }
        return self._sections.run(output, inputs)

    def warm_up(self) -> WarmRun:
        """Run the golden batch, so that the first request is not slow, and the longest block."""
        golden = read_golden_batch(self.checkpoint)
        longest = golden.blocks[0][:1] * self.checkpoint.block_capacity
        try:
            self.encode_blocks([longest])
            started = time.perf_counter()
            blocks = golden.encode(self.encode_blocks)
            seconds = time.perf_counter() - started
        except Exception as error:  # the library has no common base class
            names = ("block_length", "start_token", "end_token", "padding_token")
            sizes = ", ".join(f"{name} {getattr(self.checkpoint, name)}" for name in names)
            where = self.checkpoint.directory / CONFIG
            raise CheckpointError(f"{where}: the graphs do not take {sizes}: {error}") from error
        check_parity(golden.compare(blocks, self.combine), self.precision)
        return WarmRun(golden.blocks, blocks, sum(map(len, golden.blocks)) / seconds)


def usable_cores() -> int:
    """Return how many cores this process may use (a container may have fewer)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
