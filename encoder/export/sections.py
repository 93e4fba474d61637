"""The graph that reads one section of a document beside the next one (CoLDE, section 4.3).

One graph in fp32 serves all precisions: it explains matches on the CPU and takes no part in search.
"""

from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim

from encoder.checkpoint import Checkpoint
from encoder.export.onnx_graph import export_graph
from encoder.export.rnn import with_onnx_rnns
from encoder.golden import MAXIMUM_DIFFERENCE, GoldenBatch, check_difference
from encoder.models.architecture import EncoderModel
from encoder.onnx_session import open_section_graph

_OUTPUTS = ("section_vector", "chunk_attention")


def export_section_reader(model: EncoderModel, path: Path) -> None:
    """Export the section reader; the blocks of both sections are dynamic axes.

    Raises:
        ValueError: the model has none.
    """
    reader = model.section_reader
    if reader is None:
        raise ValueError("this architecture has no sections")
    most, width = model.config.max_blocks, model.config.hidden_size
    inputs = {
        "block_vectors": torch.rand(min(3, most), width),
        "section": torch.tensor(0),
        "next_block_vectors": torch.rand(min(2, most), width),
        "next_section": torch.tensor(1),
    }
    shapes = {
        "block_vectors": {0: Dim("blocks", min=1, max=most)},
        "section": {},
        "next_block_vectors": {0: Dim("next_blocks", min=1, max=most)},
        "next_section": {},
    }
    with torch.no_grad():
        outputs = _OUTPUTS[: len(reader(**inputs))]
    export_graph(with_onnx_rnns(reader), inputs, shapes, outputs, path)


def check_sections(model: EncoderModel, staged: Checkpoint, golden: GoldenBatch) -> None:
    """Compare the graph with the model on both halves of each golden document.

    Raises:
        CheckpointError: the graph does not load.
        ParityError: the graph does not compute what the model computes.
    """
    graph, reader = open_section_graph(staged), model.section_reader
    if graph is None or reader is None:
        return
    for start, end in pairwise([0, *accumulate(golden.sizes)]):
        middle = (start + end + 1) // 2
        first = golden.block_vectors[start:middle]
        second = golden.block_vectors[middle:end] if middle < end else first
        for number, own, following in ((0, first, second), (1, second, first)):
            inputs = {
                "block_vectors": own,
                "section": np.array(number),
                "next_block_vectors": following,
                "next_section": np.array(1 - number),
            }
            tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
            with torch.no_grad():
                expected = reader(**tensors)
            for name, output in zip(_OUTPUTS, expected, strict=False):
                difference = float(np.abs(graph.run(name, inputs) - output.numpy()).max())
                check_difference(difference, MAXIMUM_DIFFERENCE["fp32"], f"section reader, {name}")
