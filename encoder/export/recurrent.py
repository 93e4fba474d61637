"""The step graph of a recurrent encoder: one segment with the memory as input and output.

The loop over segments is not in the graph, but in `encoder/recurrent/document_reading.py`.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim

from encoder.checkpoint import Checkpoint
from encoder.export.onnx_graph import export_graph
from encoder.export.quantise import Array, Sample
from encoder.models.architecture import RecurrentModel
from encoder.recurrent.document_reading import DocumentReading

Blocks = Sequence[Sequence[int]]


def encode_document_blocks(
    checkpoint: Checkpoint, model: RecurrentModel, blocks: Blocks
) -> torch.Tensor:
    """Encode the blocks of one document with the model itself: [S, H]."""
    length = max(map(len, blocks)) + 2
    ids = torch.full((1, len(blocks), length), checkpoint.padding_token)
    mask = torch.zeros_like(ids)
    for place, block in enumerate(blocks):
        tokens = [checkpoint.start_token, *block, checkpoint.end_token]
        ids[0, place, : len(tokens)] = torch.tensor(tokens)
        mask[0, place, : len(tokens)] = 1
    return model.segment_vectors(ids, mask)[0]


def step_samples(checkpoint: Checkpoint, model: RecurrentModel, blocks: Blocks) -> list[Sample]:
    """Return the inputs of every step of one document, the memory among them."""
    samples: list[Sample] = []

    def step(inputs: Sample) -> list[Array]:
        samples.append(inputs)
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        with torch.no_grad():
            found: tuple[Tensor, ...] = model.block_encoder(**tensors)
        return [tensor.numpy() for tensor in found]

    DocumentReading(checkpoint, step, blocks).read()
    return samples


def export_step(model: RecurrentModel, path: Path) -> None:
    """Export the step; documents and tokens are its dynamic axes."""
    config = model.config
    ids = torch.ones(2, config.block_length, dtype=torch.int64)
    memory, memory_mask = model.no_memory(2)
    documents = Dim("documents")
    text = {0: documents, 1: Dim("tokens", min=2, max=config.block_length)}
    export_graph(
        model.block_encoder,
        {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "memory": memory,
            "memory_mask": memory_mask,
        },
        {
            "input_ids": text,
            "attention_mask": text,
            "memory": {1: documents},
            "memory_mask": {0: documents},
        },
        ["block_vectors", "next_memory", "next_memory_mask"],
        path,
    )
