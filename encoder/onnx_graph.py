"""Editing ONNX graphs: what a graph is made of as dictionaries and lists, and back."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
Arrays = dict[str, Array]


def arrays_of(graph: onnx.GraphProto) -> Arrays:
    """Return the initialisers of a graph by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def made_by(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return the node that makes each tensor."""
    return {output: node for node in graph.node for output in node.output}


def put_into(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, Array]
) -> None:
    """Replace nodes and initialisers of a graph; what nothing reads is left out."""
    nodes = _read_ones(nodes, {output.name for output in graph.output})
    read = {name for node in nodes for name in node.input}
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(kept)
    graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in arrays.items() if name in read
    )


def transpose_keys_at_once(graph: onnx.GraphProto) -> None:
    """Swap the last two axes of four in one node.

    The exporter reshapes to three axes, swaps and reshapes back, with a dozen nodes for shapes;
    in one node ONNX Runtime can leave it to the product that follows.
    """
    makers = made_by(graph)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        swap = makers.get(node.input[0]) if node.op_type == "Reshape" else None
        flat = makers.get(swap.input[0]) if swap is not None and _swaps_last_of_3(swap) else None
        if flat is not None and flat.op_type == "Reshape":
            nodes.append(
                helper.make_node("Transpose", [flat.input[0]], node.output, perm=[0, 1, 3, 2])
            )
        else:
            nodes.append(node)
    put_into(graph, nodes, arrays_of(graph))


def _swaps_last_of_3(node: onnx.NodeProto) -> bool:
    return node.op_type == "Transpose" and any(list(a.ints) == [0, 2, 1] for a in node.attribute)


def _read_ones(nodes: Sequence[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    kept: list[onnx.NodeProto] = []
    wanted = set(outputs)
    for node in reversed(nodes):  # nodes are in topological order
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]
