"""From PyTorch modules to ONNX graphs: layers, the step of a recurrent encoder, sections; fp16."""

import copy
import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from onnx.external_data_helper import set_external_data
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16
from torch import Tensor, nn
from torch.export import Dim

from encoder.arrays import Float32
from encoder.checkpoint import WEIGHTS, Checkpoint
from encoder.golden import MAXIMUM_DIFFERENCE, GoldenBatch, check_difference
from encoder.onnx_encoder import read_segments
from encoder.onnx_session import open_section_graph
from training.export.quantise import Array, Sample
from training.models.architecture import EncoderModel
from training.models.ernie_doc import ErnieDoc

_OPSET = 20  # the first with Gelu as one operator
_LEAST_SHARED = 256  # bytes: from smaller arrays the shapes of others are inferred
_KEPT_IN_FP32 = [*DEFAULT_OP_BLOCK_LIST, "LSTM"]  # a CPU has no kernels in fp16


def export_graph(
    module: nn.Module,
    inputs: Mapping[str, torch.Tensor],
    dynamic_shapes: Mapping[str, Mapping[int, Dim]],
    outputs: Sequence[str],
    path: Path,
) -> None:
    """Export a module to one ONNX graph, without the warnings of the exporter."""
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            module,
            kwargs=dict(inputs),
            f=path,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=dict(dynamic_shapes),
            opset_version=_OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    _clear_metadata(path)


def _clear_metadata(path: Path) -> None:
    """Remove the lines of source, with the folders of this machine, that each node came from.

    The digest of a graph then depends on what it computes alone; archives of block vectors are
    known by it (`evaluation/block_archive.py`).
    """
    model = onnx.load(path)
    for node in model.graph.node:
        node.ClearField("metadata_props")
    onnx.save(model, path)


def halve(source: Path, target: Path) -> None:
    """Write the fp16 graph of an fp32 graph; its inputs and outputs stay fp32."""
    with _quiet():
        graph = convert_float_to_float16(
            onnx.load(source), keep_io_types=True, op_block_list=_KEPT_IN_FP32
        )
    onnx.save(graph, target)


def share_weights(path: Path, weights: bytes) -> None:
    """Let an fp16 graph read its arrays out of the weights file, which has them bit for bit.

    A matrix that the exporter transposed is transposed by a node, once, when ONNX Runtime opens the
    graph. A digest of what is read stands in the graph, whose own digest changes with it.
    """
    start = 8 + int.from_bytes(weights[:8], "little")
    places: dict[bytes, int] = {}
    for about in json.loads(weights[8:start]).values():
        first, end = about["data_offsets"]
        places[weights[start + first : start + end]] = start + first
    model = onnx.load(path)
    nodes: list[onnx.NodeProto] = []
    read = hashlib.sha256()
    for tensor in model.graph.initializer:
        array, name = numpy_helper.to_array(tensor), tensor.name
        if array.dtype != np.float16 or array.nbytes < _LEAST_SHARED:
            continue
        if array.tobytes() not in places and array.T.tobytes() in places:
            array, name = array.T, f"{name}_transposed"
            nodes.append(helper.make_node("Transpose", [name], [tensor.name]))
        content = array.tobytes()
        if content in places:
            tensor.CopyFrom(numpy_helper.from_array(array, name))
            set_external_data(tensor, WEIGHTS, offset=places[content], length=len(content))
            tensor.ClearField("raw_data")
            read.update(content)
    nodes += model.graph.node
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    helper.set_model_props(model, {WEIGHTS: read.hexdigest()})
    onnx.save(model, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence exporters, which warn of their internals and of weights too small for fp16."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


M = TypeVar("M", bound=nn.Module)

_GATES = (0, 3, 1, 2)  # of an LSTM in ONNX's order, by their number in torch's


class OnnxLstm(nn.Module):
    """An `nn.LSTM` of one layer and direction as one ONNX operator.

    The exporter translates it itself (torch 2.13, onnxscript 0.7), but freezes the time axis of
    its output to the length of its example: a graph that joins it with other states, as CoLDE's
    does, fails at every other length. The parity test at three lengths shows when this can go.
    """

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, layer: nn.LSTM) -> None:
        super().__init__()
        self.hidden_size = layer.hidden_size
        state = {name: _in_order(tensor) for name, tensor in layer.state_dict().items()}
        self.register_buffer("weight", state["weight_ih_l0"][None])  # [1, 4 H, I]
        self.register_buffer("recurrence", state["weight_hh_l0"][None])  # [1, 4 H, H]
        biases = torch.cat([state["bias_ih_l0"], state["bias_hh_l0"]])
        self.register_buffer("bias", biases[None])  # [1, 8 H]

    def forward(self, states: Tensor) -> tuple[Tensor]:
        """Read states [D, S, I] -> ([D, S, H],)."""
        documents, length, _ = states.shape
        read = torch.onnx.ops.symbolic(
            "LSTM",
            (states.transpose(0, 1), self.weight, self.recurrence, self.bias),
            {"hidden_size": self.hidden_size},
            dtype=states.dtype,
            shape=(length, 1, documents, self.hidden_size),
        )
        return (read.squeeze(1).transpose(0, 1),)


def _in_order(parameter: Tensor) -> Tensor:
    gates = parameter.chunk(len(_GATES))
    return torch.cat([gates[number] for number in _GATES])


def with_onnx_lstms(module: M) -> M:
    """Return a copy of a module in which every LSTM is an operator of ONNX."""
    changed = copy.deepcopy(module)
    for parent in list(changed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.LSTM):
                setattr(parent, name, OnnxLstm(child))
    return changed


def read_with_model(
    checkpoint: Checkpoint, model: EncoderModel, blocks: Sequence[Sequence[int]]
) -> tuple[Float32, list[Sample]]:
    """Encode the blocks of one document with the model itself, one at a time, without padding.

    Returns:
        Their vectors [S, H], and the inputs of each call; a recurrent one has its memory, too.
    """
    samples: list[Sample] = []

    def encode(inputs: Sample) -> list[Array]:
        samples.append(inputs)
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        with torch.no_grad():
            found: Tensor | tuple[Tensor, ...] = model.block_encoder(**tensors)
        return [tensor.numpy() for tensor in (found if isinstance(found, tuple) else (found,))]

    if isinstance(model, ErnieDoc):
        return read_segments(checkpoint, encode, blocks), samples
    vectors = []
    for block in blocks:
        ids = np.array([[checkpoint.start_token, *block, checkpoint.end_token]], dtype=np.int64)
        vectors += encode({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return np.concatenate(vectors), samples


def export_step(model: ErnieDoc, path: Path) -> None:
    """Export the step of a recurrent encoder: one segment, with the memory as input and output.

    Documents and tokens are its dynamic axes. The loop over segments is in
    `encoder/onnx_encoder.py`.
    """
    config = model.config
    ids = torch.ones(2, config.block_length, dtype=torch.int64)
    memory, memory_mask = model.block_encoder.no_memory(2)
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


_OUTPUTS = ("section_vector", "chunk_attention")


def export_section_reader(model: EncoderModel, path: Path) -> None:
    """Export the graph that reads a section of a document and the next one (CoLDE, section 4.3).

    One graph in fp32 serves all precisions: it explains matches on the CPU and takes no part in
    search. The blocks of both sections are dynamic axes.
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
    export_graph(with_onnx_lstms(reader), inputs, shapes, outputs, path)


def check_sections(model: EncoderModel, staged: Checkpoint, golden: GoldenBatch) -> None:
    """Compare the graph with the model on both halves of each golden document."""
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
