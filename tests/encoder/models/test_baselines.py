"""HAN, SMASH, DSSM and ARC-I against their formulas, written out one number after another."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder.models.architecture import EncoderModel
from encoder.models.baselines import AttentiveGru
from encoder.models.registry import ENCODERS

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "han": ("han", {}),
    "smash": ("han", {"paragraph_blocks": 2}),
    "dssm": ("dssm", {"middle_size": 5}),
    "arc-i": ("arc-i", {}),
}
every_model = pytest.mark.parametrize("name", MODELS)


def small(name: str) -> EncoderModel:
    """A model of six-wide block vectors and four-wide document vectors, in evaluation mode."""
    architecture, changes = MODELS[name]
    torch.manual_seed(0)
    of = ENCODERS[architecture]
    sizes = {"vocabulary_size": 30, "block_length": 8, "max_blocks": 9}
    model = of.model(of.config(**sizes, hidden_size=6, dimension=4, **changes)).eval()
    with torch.no_grad():  # away from the small start, so that differences show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


def tokens(*lengths: int) -> tuple[Tensor, Tensor]:
    """Blocks of these lengths: token ids and mask, both [N, T]; padding holds tokens, too."""
    torch.manual_seed(1)
    ids = torch.randint(1, 30, (len(lengths), max(lengths)))
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    return ids, mask


def unit(values: Sequence[float]) -> list[float]:
    norm = math.sqrt(sum(value * value for value in values))
    return [value / norm for value in values]


def linear(layer: nn.Linear, values: Sequence[float]) -> list[float]:
    biases = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    rows = zip(layer.weight.tolist(), biases, strict=True)
    return [sum(map(float.__mul__, row, values)) + bias for row, bias in rows]


def gru(layer: nn.GRU, sequence: Sequence[Sequence[float]]) -> list[list[float]]:
    """Cho et al. (2014) with the reset gate of torch: r * (U h + b)."""
    size = layer.hidden_size
    of = {name: tensor.tolist() for name, tensor in layer.state_dict().items()}
    states, state = [], [0.0] * size

    def gate(number: int, which: str, values: Sequence[float]) -> list[float]:
        rows = of[f"weight_{which}_l0"][number * size : (number + 1) * size]
        biases = of[f"bias_{which}_l0"][number * size : (number + 1) * size]
        return [sum(map(float.__mul__, r, values)) + b for r, b in zip(rows, biases, strict=True)]

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    for values in sequence:
        read = [gate(number, "ih", values) for number in range(3)]
        kept = [gate(number, "hh", state) for number in range(3)]
        reset = [sigmoid(a + b) for a, b in zip(read[0], kept[0], strict=True)]
        update = [sigmoid(a + b) for a, b in zip(read[1], kept[1], strict=True)]
        new = [math.tanh(a + r * b) for a, b, r in zip(read[2], kept[2], reset, strict=True)]
        state = [(1 - z) * n + z * h for z, n, h in zip(update, new, state, strict=True)]
        states.append(state)
    return states


def attentive_gru(level: AttentiveGru, sequence: Sequence[Sequence[float]]) -> list[float]:
    there = gru(level.gru.forwards, sequence)
    back = gru(level.gru.backwards, sequence[::-1])[::-1]
    read = [one + other for one, other in zip(there, back, strict=True)]
    hidden = [[math.tanh(value) for value in linear(level.hidden, row)] for row in read]
    shares = [math.exp(linear(level.context, row)[0]) for row in hidden]
    size = len(read[0])
    return [
        sum(share / sum(shares) * row[column] for share, row in zip(shares, read, strict=True))
        for column in range(size)
    ]


def embed(model: EncoderModel, ids: Sequence[int]) -> list[list[float]]:
    return [model.block_encoder.token_embedding.weight[token].tolist() for token in ids]


def han_block(model: Any, ids: Sequence[int]) -> list[float]:
    return unit(attentive_gru(model.block_encoder.layers[0], embed(model, ids)))


def han_document(model: Any, blocks: Sequence[Sequence[float]]) -> list[float]:
    level = model.document_encoder
    features = attentive_gru(level.sentences, blocks)
    size = level.config.paragraph_blocks
    if size:
        paragraphs = [blocks[start : start + size] for start in range(0, len(blocks), size)]
        read = [attentive_gru(level.of_paragraph, one) for one in paragraphs]
        features = features + attentive_gru(level.paragraphs, read)
    return unit(linear(level.projection, features))


def dssm_block(model: Any, ids: Sequence[int]) -> list[float]:
    return unit([sum(column) / len(ids) for column in zip(*embed(model, ids), strict=True)])


def dssm_document(model: Any, blocks: Sequence[Sequence[float]]) -> list[float]:
    level = model.document_encoder
    mean = [sum(column) / len(blocks) for column in zip(*blocks, strict=True)]
    biases = level.first_bias.tolist()
    layer = [math.tanh(value + bias) for value, bias in zip(mean, biases, strict=True)]
    for one in (level.second, level.projection):
        layer = [math.tanh(value) for value in linear(one, layer)]
    return unit(layer)


def arc_i_block(model: Any, ids: Sequence[int]) -> list[float]:
    states, places = embed(model, ids), range(len(ids))
    nothing = [0.0] * 6
    for step, layer in zip((1, 2, 4), model.block_encoder.layers, strict=True):
        weight, bias = layer.weight.tolist(), layer.bias.tolist()

        def at(rows: list[list[float]], place: int) -> list[float]:
            return rows[place] if place in places else nothing

        convolved = []
        for place in places:
            window = [at(states, place + step * offset) for offset in (-1, 0, 1)]
            row = []
            for channel in range(6):
                kernel = weight[channel]  # [H, 3]
                terms = [kernel[i][o] * window[o][i] for i in range(6) for o in range(3)]
                row.append(max(0.0, sum(terms) + bias[channel]))
            convolved.append(row)
        states = [
            [max(a, b) for a, b in zip(at(convolved, p), at(convolved, p + step), strict=True)]
            for p in places
        ]
    return unit([max(column) for column in zip(*states, strict=True)])


def arc_i_document(model: Any, blocks: Sequence[Sequence[float]]) -> list[float]:
    highest = [max(column) for column in zip(*blocks, strict=True)]
    return unit(linear(model.document_encoder.projection, highest))


NAIVE: dict[str, tuple[Callable[..., list[float]], Callable[..., list[float]]]] = {
    "han": (han_block, han_document),
    "smash": (han_block, han_document),
    "dssm": (dssm_block, dssm_document),
    "arc-i": (arc_i_block, arc_i_document),
}


@every_model
def test_both_levels_are_the_formulas_whatever_the_padding(name: str) -> None:
    model = small(name)
    naive_block, naive_document = NAIVE[name]
    lengths = (3, 7, 1, 5, 2)
    ids, mask = tokens(*lengths)
    with torch.no_grad():
        blocks = model.block_encoder(ids, mask)
    expected = [
        naive_block(model, row[:length]) for row, length in zip(ids.tolist(), lengths, strict=True)
    ]
    assert torch.allclose(blocks, torch.tensor(expected), atol=1e-5)
    documents = [blocks[:5], blocks[:1], blocks[1:4]]
    padded = torch.full((3, 5, 6), 9.0)
    block_mask = torch.zeros(3, 5, dtype=torch.int64)
    for row, one in enumerate(documents):
        padded[row, : len(one)], block_mask[row, : len(one)] = one, 1
    with torch.no_grad():
        vectors = model.document_encoder(padded, block_mask)
    expected = [naive_document(model, one.tolist()) for one in documents]
    assert torch.allclose(vectors, torch.tensor(expected), atol=1e-5)


@every_model
def test_gradients_reach_every_parameter(name: str) -> None:
    model = small(name).train()
    ids, mask = tokens(8, 8, 8, 8)
    blocks = model.block_encoder(ids, mask)
    vectors = model.document_encoder(blocks[None], torch.ones(1, 4, dtype=torch.int64))
    (vectors @ torch.randn(4)).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size must be even, not 7"):
        ENCODERS["han"].config(hidden_size=7)
    with pytest.raises(ValueError, match="paragraph_blocks must not be negative"):
        ENCODERS["han"].config(paragraph_blocks=-1)
