"""From a PyTorch module to an ONNX graph, and from fp32 to fp16."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
import torch
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16
from torch import nn
from torch.export import Dim

_OPSET = 20  # the first with Gelu as one operator
_KEPT_IN_FP32 = [*DEFAULT_OP_BLOCK_LIST, "LSTM", "GRU"]  # a CPU has no kernels in fp16


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
    known by it (`encoder/block_archive.py`).
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
