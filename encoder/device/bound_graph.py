"""A graph whose inputs and outputs stay where it runs: ONNX Runtime's IO binding.

Without it, every call allocates its inputs and outputs on the device and copies both in the time of
the call. Here each shape has buffers on the device that are used again. Each call has a lane,
a set of buffers: while one lane computes, the thread of the next one pads and copies. On a CPU
the same steps run on buffers in its own memory.
"""

import queue
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from encoder.arrays import Float32

LANES = 2  # one computes while the other one is filled and emptied
KEPT_SHAPES = 24  # of each lane: the buffers of others are made again

Inputs = Mapping[str, NDArray[Any]]
_Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Memory on the device for the inputs and the output of one shape."""

    inputs: Mapping[str, ort.OrtValue]
    output: ort.OrtValue


@dataclass(frozen=True, slots=True)
class _Lane:
    """What one call at a time uses: a binding, and buffers by the shapes of the inputs."""

    binding: ort.IOBinding
    buffers: "OrderedDict[_Shapes, _Buffers]" = field(default_factory=OrderedDict)


class BoundGraph:
    """A graph with one output of one row for each row of its first input.

    Attributes:
        device: where its buffers are, "cuda" or "cpu".
        width: of a row of the output.
    """

    def __init__(self, session: ort.InferenceSession, width: int, device: str) -> None:
        """Bind a session, whose output has rows of this width, on the device of its provider."""
        self.device = device
        self._session = session
        self.width = width
        self._output = session.get_outputs()[0].name
        self._lanes: queue.SimpleQueue[_Lane] = queue.SimpleQueue()
        for _ in range(LANES):
            self._lanes.put(_Lane(session.io_binding()))

    def run(self, inputs: Inputs, into: Float32, rows: Sequence[int]) -> None:
        """Compute one call, on a lane that is free; further threads wait for one.

        Args:
            inputs: by name, of the same number of rows each.
            into: [N, width], where the output is written to.
            rows: of `into`, for the first rows of the output; those that follow are padding.
        """
        with self._lane() as lane:
            buffers = self._buffers(lane, inputs)
            for name, array in inputs.items():
                buffers.inputs[name].update_inplace(array)
                # Bound again: where a graph wants an input elsewhere, binding copies it there.
                lane.binding.bind_ortvalue_input(name, buffers.inputs[name])
            lane.binding.bind_ortvalue_output(self._output, buffers.output)
            lane.binding.synchronize_inputs()
            self._session.run_with_iobinding(lane.binding)
            lane.binding.synchronize_outputs()
            # The only copy to the host; on a CPU `numpy` is the buffer, which the next call fills.
            into[rows] = buffers.output.numpy()[: len(rows)]

    @contextmanager
    def _lane(self) -> Iterator[_Lane]:
        lane = self._lanes.get()
        try:
            yield lane
        finally:
            self._lanes.put(lane)

    def _buffers(self, lane: _Lane, inputs: Inputs) -> _Buffers:
        shapes = tuple(array.shape for array in inputs.values())
        found = lane.buffers.get(shapes)
        if found is None:
            if len(lane.buffers) >= KEPT_SHAPES:
                lane.buffers.popitem(last=False)
            found = lane.buffers[shapes] = self._make(inputs, shapes[0][0])
        lane.buffers.move_to_end(shapes)
        return found

    def _make(self, inputs: Inputs, rows: int) -> _Buffers:
        def make(shape: tuple[int, ...], kind: Any) -> ort.OrtValue:
            return ort.OrtValue.ortvalue_from_shape_and_type(shape, kind, self.device, 0)

        return _Buffers(
            {name: make(array.shape, array.dtype.type) for name, array in inputs.items()},
            make((rows, self.width), np.float32),
        )
