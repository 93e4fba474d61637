"""The int8 graph: what its remedies are for, on graphs small enough to see it."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import TensorProto, helper, numpy_helper

from encoder.arrays import Float32
from training.export.quantise import quantise, quantise_channels


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 9), st.integers(1, 5)),
        elements=st.floats(-100, 100, width=32),
    )
)
def test_no_pair_of_weights_can_overflow_16_bits(weights: Float32) -> None:
    quantised, scales = quantise_channels(weights)
    assert np.abs(quantised * scales - weights).max() <= scales.max() * 0.5001
    even = np.pad(quantised.astype(np.int64), ((0, len(quantised) % 2), (0, 0)))
    for sign in (1, -1):
        pairs = (sign * even).clip(min=0).reshape(-1, 2, even.shape[1]).sum(1)
        assert 255 * pairs.max() <= 32_767


def test_weights_that_leave_room_have_all_8_bits() -> None:
    weights = np.array([[1.0], [-1.0], [0.5], [0.1]], dtype=np.float32)
    assert quantise_channels(weights)[0].tolist() == [[127], [-127], [64], [13]]
    small = np.array([[4.2e-44, 1.0]], dtype=np.float32)  # too small for a scale: zero
    quantised, scales = quantise_channels(small)
    assert (quantised.tolist(), scales[0]) == ([[0, 127]], 1)


def feed_forward(folder: Path, *, outlier: float, channel: float) -> Path:
    """Write normalise -> linear -> Gelu -> linear, with one loud neuron and one loud channel."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(16, 32), scale=0.3)
    first[:, 5] *= outlier
    loud = np.ones(16)
    loud[3] = channel
    first[3] /= channel
    second = rng.normal(size=(32, 16), scale=0.3)
    second[5] /= outlier
    values = {
        "norm": loud,
        "a": first,
        "a_bias": rng.normal(size=32),
        "b": second,
        "b_bias": rng.normal(size=16),
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "norm"], ["states"]),
        helper.make_node("MatMul", ["states", "a"], ["t1"]),
        helper.make_node("Add", ["t1", "a_bias"], ["t2"]),
        helper.make_node("Gelu", ["t2"], ["t3"]),
        helper.make_node("MatMul", ["t3", "b"], ["t4"]),
        helper.make_node("Add", ["t4", "b_bias"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16])],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in values.items()],
    )
    opset = [helper.make_opsetid("", 20)]
    path = folder / "fp32.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


def run(path: Path, x: Float32) -> Float32:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: Float32 = session.run(None, {"x": x})[0]
    return result


@pytest.mark.parametrize(("outlier", "channel"), [(1.0, 1.0), (30.0, 1.0), (1.0, 30.0)])
def test_loud_neurons_and_channels_cost_nothing(
    tmp_path: Path, outlier: float, channel: float
) -> None:
    source = feed_forward(tmp_path, outlier=outlier, channel=channel)
    inputs = np.random.default_rng(1).normal(size=(64, 16)).astype(np.float32)
    quantise(source, tmp_path / "int8.onnx", [{"x": inputs[:32]}])
    expected, found = run(source, inputs), run(tmp_path / "int8.onnx", inputs)
    assert np.sqrt(((found - expected) ** 2).mean()) <= 0.02 * expected.std()


def test_the_same_graph_gives_the_same_file(tmp_path: Path) -> None:
    source = feed_forward(tmp_path, outlier=9.0, channel=9.0)
    sample = {"x": np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)}
    for name in ("one", "two"):
        quantise(source, tmp_path / name, [sample])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_each_row_of_a_table_has_a_scale(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(2_000, 4)).astype(np.float32)
    table *= np.logspace(-3, 3, 2_000, dtype=np.float32)[:, None]
    table[7] = 0
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(table, "table")],
    )
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "fp32")
    quantise(tmp_path / "fp32", tmp_path / "int8", [{"x": np.arange(3)}])
    found = run(tmp_path / "int8", np.arange(2_000))
    peaks = np.abs(table).max(1, keepdims=True)
    assert (np.abs(found - table) <= peaks / 127 * 0.501).all()
    assert (tmp_path / "int8").stat().st_size < (tmp_path / "fp32").stat().st_size / 1.9
