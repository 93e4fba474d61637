"""Turn an fp32 graph into an int8 one: weights of 8 bits, activations quantised dynamically.

A post-norm Transformer loses accuracy by this in few places, each of which has a remedy:

* One or two neurons of a feed-forward layer fire many times higher than all others, and the one
  scale of a tensor must reach them. They are taken out and computed in fp32.
* A few channels of the normalised states do the same, more mildly. Every channel is divided by a
  power of its peak and its row of the weights multiplied by it (SmoothQuant, Xiao et al. 2023).
* Processors without VNNI add two products of 8 bits into 16. Instead of giving all weights 7 bits,
  the scale of an output channel is set so that no pair of its weights can overflow.
* Rows of an embedding table differ in size, so each has its own scale.

Layers whose weights are named `projection` stay in fp32: they are cheap and decisive.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from encoder.arrays import Float32, Int8

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
    """Replace nodes and initialisers of a graph; unread ones are left out."""
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
    needed = set(outputs)
    for node in reversed(nodes):  # nodes are in topological order
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    return kept[::-1]


Sample = Mapping[str, Array]

OUTLIER_NEURONS = 2  # of a feed-forward layer
SMOOTHING = 0.6  # power of a channel's peak that is moved into the weights
_KEPT = ("projection", "outlier")
_TABLE_ROWS = 1_024  # smaller tables are left as they are


def quantise(source: Path, target: Path, samples: Sequence[Sample]) -> None:
    """Write the int8 graph of an fp32 graph; samples of its inputs show its activations."""
    model = onnx.load(source)
    transpose_keys_at_once(model.graph)
    peaks = _peaks(model, samples)
    _set_outliers_apart(model.graph, peaks)
    arrays = arrays_of(model.graph)
    nodes: list[onnx.NodeProto] = []
    makers = made_by(model.graph)
    for node in model.graph.node:
        if _is_linear(node, arrays):
            even = _maker(node, makers) == "LayerNormalization"
            shrink = _shrink(peaks[node.input[0]]) if even else None
            nodes += _integer_matmul(node, arrays, shrink)
        elif node.op_type == "Gather" and len(arrays.get(node.input[0], ())) >= _TABLE_ROWS:
            nodes += _integer_gather(node, arrays)
        else:
            nodes.append(node)
    put_into(model.graph, nodes, arrays)
    onnx.save(model, target)


def quantise_channels(weights: Float32) -> tuple[Int8, Float32]:
    """Quantise weights [K, N] symmetrically, a scale for each output channel.

    Two neighbouring rows are multiplied by activations of up to 255 and added in 16 bits: their
    positive parts may come to 128 at most, and so may their negative parts.

    Returns:
        Int8[K, N] and Float32[N].
    """
    even = np.pad(weights, ((0, len(weights) % 2), (0, 0)))
    first, second = even[0::2], even[1::2]
    positive = first.clip(min=0) + second.clip(min=0)
    negative = first.clip(max=0) + second.clip(max=0)
    largest = np.maximum(positive, -negative).max(0)  # [N], at least the largest weight
    scales = largest / 127  # 1 is left for rounding
    # A channel of zeros, or of numbers too small to have such a scale, has weights of zero.
    scales = np.where(scales < np.finfo(np.float32).tiny, 1, scales).astype(np.float32)
    return np.rint(weights / scales).astype(np.int8), scales


def _peaks(model: onnx.ModelProto, samples: Sequence[Sample]) -> dict[str, Float32]:
    """Return the largest magnitude of each channel of what goes into each linear layer."""
    arrays = arrays_of(model.graph)
    names = sorted({node.input[0] for node in model.graph.node if _is_linear(node, arrays)})
    if not names:
        return {}
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        watched.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    peaks: dict[str, Float32] = {}
    for sample in samples:
        for name, values in zip(names, session.run(names, dict(sample)), strict=True):
            peak = np.abs(values).reshape(-1, values.shape[-1]).max(0)
            peaks[name] = np.maximum(peaks.get(name, 0), peak)
    return peaks


def _set_outliers_apart(graph: onnx.GraphProto, peaks: dict[str, Float32]) -> None:
    """Give the neurons of highest peak a separate fp32 path in each feed-forward layer.

    Gelu(x A + a) B + b is a sum over neurons, which may be taken in two parts.
    """
    arrays = arrays_of(graph)
    makers = made_by(graph)
    nodes: list[onnx.NodeProto] = []
    sides: dict[str, str] = {}  # what is to be added once the bias has been
    for node in graph.node:
        side = next((sides.pop(name) for name in node.input if name in sides), None)
        if side is not None and node.op_type == "Add":
            whole, node.output[0] = node.output[0], f"{node.output[0]}_main"
            nodes += [node, helper.make_node("Add", [node.output[0], side], [whole])]
            continue
        nodes.append(node)
        if _is_linear(node, arrays) and _maker(node, makers) == "Gelu":
            add = makers[makers[node.input[0]].input[0]]
            outliers = np.argsort(-peaks[node.input[0]], kind="stable")[:OUTLIER_NEURONS]
            nodes += _outlier_path(makers[add.input[0]], add, node, outliers, arrays)
            sides[node.output[0]] = nodes[-1].output[0]
    put_into(graph, nodes, arrays)


def _outlier_path(
    first: onnx.NodeProto,
    add: onnx.NodeProto,
    second: onnx.NodeProto,
    neurons: NDArray[np.intp],
    arrays: Arrays,
) -> list[onnx.NodeProto]:
    """Move neurons between two MatMuls out of their weights into separate nodes."""
    names = []
    for name, axis in ((first.input[1], 1), (add.input[1], 0), (second.input[1], 0)):
        names.append(f"{name}_outlier")
        arrays[names[-1]] = np.take(arrays[name], neurons, axis)
        # zero, not gone: kernels like sizes to be round
        rest = arrays[name].copy()
        rest[(slice(None),) * axis + (neurons,)] = 0
        arrays[name] = rest
    out = f"{second.output[0]}_outlier"
    return [
        helper.make_node("MatMul", [first.input[0], names[0]], [f"{out}_1"]),
        helper.make_node("Add", [f"{out}_1", names[1]], [f"{out}_2"]),
        helper.make_node("Gelu", [f"{out}_2"], [f"{out}_3"]),
        helper.make_node("MatMul", [f"{out}_3", names[2]], [out]),
    ]


def _integer_matmul(
    node: onnx.NodeProto, arrays: Arrays, shrink: Float32 | None
) -> list[onnx.NodeProto]:
    """Replace x W by (x / shrink) (shrink W) in int8; ONNX Runtime fuses all but the first."""
    (states, name), out = node.input, node.output[0]
    weights = arrays.pop(name)
    nodes = []
    if shrink is not None:
        weights = weights * shrink[:, None]
        arrays[f"{name}_shrink"] = 1 / shrink
        nodes = [helper.make_node("Mul", [states, f"{name}_shrink"], [f"{out}_even"])]
        states = f"{out}_even"
    arrays[f"{name}_int8"], arrays[f"{name}_scale"] = quantise_channels(weights)
    arrays[f"{name}_zero"] = np.zeros(weights.shape[1], dtype=np.int8)
    made = [f"{out}_int8", f"{out}_scale", f"{out}_zero"]
    return [
        *nodes,
        helper.make_node("DynamicQuantizeLinear", [states], made),
        helper.make_node(
            "MatMulInteger", [made[0], f"{name}_int8", made[2], f"{name}_zero"], [f"{out}_int32"]
        ),
        helper.make_node("Mul", [made[1], f"{name}_scale"], [f"{out}_scales"]),
        helper.make_node("Cast", [f"{out}_int32"], [f"{out}_cast"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{out}_cast", f"{out}_scales"], [out]),
    ]


def _integer_gather(node: onnx.NodeProto, arrays: Arrays) -> list[onnx.NodeProto]:
    """Keep a table in int8 with a scale for each row."""
    (name, rows), out = node.input, node.output[0]
    table = arrays.pop(name)
    scales = np.abs(table).max(1, keepdims=True) / 127
    scales = np.where(scales > 0, scales, 1).astype(np.float32)  # [R, 1]
    arrays[f"{name}_int8"] = np.rint(table / scales).astype(np.int8)
    arrays[f"{name}_scale"] = scales
    return [
        helper.make_node("Gather", [f"{name}_int8", rows], [f"{out}_int8"]),
        helper.make_node("Gather", [f"{name}_scale", rows], [f"{out}_scale"]),
        helper.make_node("Cast", [f"{out}_int8"], [f"{out}_cast"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{out}_cast", f"{out}_scale"], [out]),
    ]


def _shrink(peaks: Float32) -> Float32:
    """Return what to divide each channel by, rounded so that the last bits of a peak do not show.

    Other processors add in another order; the graph should not depend on which one exports.
    """
    octaves = SMOOTHING * np.log2(np.where(peaks > 0, peaks, 1))
    shrink: Float32 = np.exp2(np.rint(8 * octaves) / 8).astype(np.float32)
    return shrink


def _is_linear(node: onnx.NodeProto, arrays: Mapping[str, Array]) -> bool:
    if node.op_type != "MatMul" or np.ndim(arrays.get(node.input[1], 0)) != 2:
        return False
    return not any(word in node.input[1] for word in _KEPT)


def _maker(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> str:
    maker = makers.get(node.input[0])
    return str(maker.op_type) if maker is not None else ""
