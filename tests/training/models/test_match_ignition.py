"""Match-Ignition's cross-encoder: which words it drops, and that nothing else changes."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from training.models.match_ignition import MatchIgnition, MatchIgnitionConfig

CONFIG = MatchIgnitionConfig(
    vocabulary_size=50, length=64, hidden_size=16, intermediate_size=32, attention_heads=4,
    layers=3, reduction=0.2,
)  # fmt: skip


def pair(words: int, padded: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return one pair of so many tokens, and padding behind it."""
    generator = torch.Generator().manual_seed(words)
    length = words + padded
    ids = torch.randint(5, 50, (1, length), generator=generator)
    types, special = torch.zeros(2, 1, length, dtype=torch.int64)
    half = words // 2
    types[:, half + 1 : words] = 1
    special[:, 0], special[:, half], special[:, words - 1], special[:, words:] = 2, 1, 1, -1
    return ids, types, special


@pytest.fixture
def model() -> MatchIgnition:
    torch.manual_seed(3)
    made = MatchIgnition(CONFIG)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


@pytest.mark.parametrize("importance", ["pagerank", "attention", "norm"])
@torch.no_grad()
def test_a_pair_hangs_on_neither_padding_nor_its_batch(
    model: MatchIgnition, importance: str
) -> None:
    model.cross_encoder.config = replace(CONFIG, importance=importance)
    alone = torch.cat([model(*pair(words)) for words in (20, 33)])
    short, long = pair(20, padded=13), pair(33)
    together = model(*(torch.cat(both) for both in zip(short, long, strict=True)))
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_chance_drops_other_words_each_time(model: MatchIgnition) -> None:
    model.cross_encoder.config = replace(CONFIG, importance="random")
    torch.manual_seed(1)
    assert model(*pair(60)) != model(*pair(60))


def test_gradients_reach_every_weight(model: MatchIgnition) -> None:
    model(*pair(40)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in (
        *({"attention_heads": 5}, {"reduction": 1.0}, {"importance": "luck"}, {"layers": 0}),
    ):
        with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[-1]):
            replace(CONFIG, **wrong)
