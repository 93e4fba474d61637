"""An LSTM as one ONNX operator.

The exporter translates LSTMs itself (torch 2.13, onnxscript 0.7), but freezes the time axis of
their output to the length of its example: a graph that joins it with other states, as CoLDE's does,
fails at every other length. The parity test at three lengths shows when this module can go.
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class OnnxLstm(nn.Module):
    """Stands for an `nn.LSTM` of one layer and one direction while a graph is exported."""

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        if not lstm.batch_first or lstm.num_layers != 1 or lstm.bidirectional:
            raise ValueError("only one layer of one direction, the batch first, is exported")
        self.hidden_size = lstm.hidden_size
        state = lstm.state_dict()
        self.register_buffer("weight", _onnx_order(state["weight_ih_l0"])[None])  # [1, 4H, I]
        self.register_buffer("recurrence", _onnx_order(state["weight_hh_l0"])[None])  # [1, 4H, H]
        biases = [_onnx_order(state[f"bias_{which}_l0"]) for which in ("ih", "hh")]
        self.register_buffer("bias", torch.cat(biases)[None])  # [1, 8H]

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


def with_onnx_lstms(module: M) -> M:
    """Return a copy of a module in which every LSTM is an operator of ONNX."""
    changed = copy.deepcopy(module)
    for parent in list(changed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.LSTM):
                setattr(parent, name, OnnxLstm(child))
    return changed


def _onnx_order(gates: Tensor) -> Tensor:
    """Put the gates of torch (input, forget, cell, output) in ONNX's order (i, o, f, c)."""
    i, f, c, o = gates.chunk(4)
    return torch.cat([i, o, f, c])
