"""Recurrent layers that read a padded sequence in both directions."""

import torch
from torch import Tensor, nn


class Bidirectional(nn.Module):
    """Two recurrent layers, of which the backward one begins at the last row, not in padding."""

    def __init__(
        self, layer: type[nn.LSTM] | type[nn.GRU], input_size: int, output_size: int
    ) -> None:
        super().__init__()
        self.forwards = layer(input_size, output_size // 2, batch_first=True)
        self.backwards = layer(input_size, output_size // 2, batch_first=True)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Read states [D, S, H], padding last under mask [D, S] -> [D, S, output_size]."""
        lengths = mask.long().sum(1, keepdim=True)  # [D, 1]
        places = torch.arange(states.shape[1], device=states.device)[None]  # [1, S]
        turned = torch.where(
            places < lengths, lengths - 1 - places, places
        )  # [D, S], undoes itself
        there = self.forwards(states)[0]
        back = _at(self.backwards(_at(states, turned))[0], turned)
        return torch.cat([there, back], dim=-1)


def check_output_size(name: str, size: int) -> None:
    """Check the width of a bidirectional layer, half of which is of each direction.

    Raises:
        ValueError: it is odd; the message has the name.
    """
    if size % 2:
        raise ValueError(f"{name} must be even, not {size}")


def _at(states: Tensor, places: Tensor) -> Tensor:
    """Return the states [D, S, H] at places [D, S]."""
    return states.gather(1, places[:, :, None].expand_as(states))
