"""An LSTM or a GRU as one ONNX operator.

The exporter translates them itself (torch 2.13, onnxscript 0.7), but freezes the time axis of
their output to the length of its example: a graph that joins it with other states, as CoLDE's does,
fails at every other length. The parity test at three lengths shows when this module can go.
"""

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)

# The gates in ONNX's order, by their number in torch's.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
# The GRU of torch multiplies the reset gate after the linear layer of the hidden state.
_ATTRIBUTES: dict[str, dict[str, int]] = {"LSTM": {}, "GRU": {"linear_before_reset": 1}}


class OnnxRnn(nn.Module):
    """Stands for an `nn.LSTM` or `nn.GRU` of one layer and direction while a graph is exported."""

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, layer: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        if not layer.batch_first or layer.num_layers != 1 or layer.bidirectional:
            raise ValueError("only one layer of one direction, the batch first, is exported")
        self.operator = layer.mode
        self.hidden_size = layer.hidden_size
        state = {name: self._ordered(tensor) for name, tensor in layer.state_dict().items()}
        self.register_buffer("weight", state["weight_ih_l0"][None])  # [1, G H, I], G gates
        self.register_buffer("recurrence", state["weight_hh_l0"][None])  # [1, G H, H]
        biases = torch.cat([state["bias_ih_l0"], state["bias_hh_l0"]])
        self.register_buffer("bias", biases[None])  # [1, 2 G H]

    def forward(self, states: Tensor) -> tuple[Tensor]:
        """Read states [D, S, I] -> ([D, S, H],)."""
        documents, length, _ = states.shape
        attributes: dict[str, Any] = {"hidden_size": self.hidden_size}
        read = torch.onnx.ops.symbolic(
            self.operator,
            (states.transpose(0, 1), self.weight, self.recurrence, self.bias),
            attributes | _ATTRIBUTES[self.operator],
            dtype=states.dtype,
            shape=(length, 1, documents, self.hidden_size),
        )
        return (read.squeeze(1).transpose(0, 1),)

    def _ordered(self, parameter: Tensor) -> Tensor:
        order = _GATES[self.operator]
        gates = parameter.chunk(len(order))
        return torch.cat([gates[number] for number in order])


def with_onnx_rnns(module: M) -> M:
    """Return a copy of a module in which every LSTM and GRU is an operator of ONNX."""
    changed = copy.deepcopy(module)
    for parent in list(changed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.LSTM | nn.GRU):
                setattr(parent, name, OnnxRnn(child))
    return changed
