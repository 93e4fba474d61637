"""HAN, SMASH, DSSM and ARC-I against their formulas, written once more in NumPy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.training.models.test_formulas import Array, linear, numbers, softmax, unit
from training.models.architecture import EncoderModel
from training.models.baselines import AttentiveGru
from training.models.registry import ENCODERS

MODELS: dict[str, dict[str, Any]] = {
    "han": {},
    "smash": {"paragraph_blocks": 2},
    "dssm": {"middle_size": 5},
    "arc-i": {},
}
every_model = pytest.mark.parametrize("name", MODELS)


def small(name: str) -> EncoderModel:
    """A model of six-wide block vectors and four-wide document vectors, in evaluation mode."""
    torch.manual_seed(0)
    of, changes = ENCODERS["han" if name == "smash" else name], MODELS[name]
    sizes = {"vocabulary_size": 30, "block_length": 8, "max_blocks": 9}
    model = of(of.configuration(**sizes, hidden_size=6, dimension=4, **changes)).eval()
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


def gru(layer: nn.GRU, inputs: Array) -> Array:
    """Cho et al. (2014) with the reset gate of torch: r * (U h + b)."""
    states, h = [], np.zeros(layer.hidden_size)
    for x in inputs:
        read = numbers(layer.weight_ih_l0) @ x + numbers(layer.bias_ih_l0)
        kept = numbers(layer.weight_hh_l0) @ h + numbers(layer.bias_hh_l0)
        (read_r, read_z, read_n), (kept_r, kept_z, kept_n) = np.split(read, 3), np.split(kept, 3)
        reset, update = (1 / (1 + np.exp(-g)) for g in (read_r + kept_r, read_z + kept_z))
        h = (1 - update) * np.tanh(read_n + reset * kept_n) + update * h
        states.append(h)
    return np.stack(states)


def attentive_gru(level: AttentiveGru, inputs: Array) -> Array:
    back = gru(level.gru.backwards, inputs[::-1])[::-1]
    read = np.concatenate([gru(level.gru.forwards, inputs), back], axis=1)
    shares = softmax(linear(level.context, np.tanh(linear(level.hidden, read))), axis=0)
    return (shares * read).sum(0)


def embed(model: EncoderModel, ids: Sequence[int]) -> Array:
    return numbers(model.block_encoder.token_embedding.weight)[list(ids)]


def han_block(model: Any, ids: Sequence[int]) -> Array:
    return unit(attentive_gru(model.block_encoder.layers[0], embed(model, ids)))


def han_document(model: Any, blocks: Array) -> Array:
    level = model.document_encoder
    features = attentive_gru(level.sentences, blocks)
    if size := level.config.paragraph_blocks:
        paragraphs = [blocks[start : start + size] for start in range(0, len(blocks), size)]
        read = np.stack([attentive_gru(level.of_paragraph, rows) for rows in paragraphs])
        features = np.concatenate([features, attentive_gru(level.paragraphs, read)])
    return unit(linear(level.projection, features))


def dssm_block(model: Any, ids: Sequence[int]) -> Array:
    return unit(embed(model, ids).mean(0))


def dssm_document(model: Any, blocks: Array) -> Array:
    level = model.document_encoder
    first = np.tanh(blocks.mean(0) + numbers(level.first_bias))
    return unit(np.tanh(linear(level.projection, np.tanh(linear(level.second, first)))))


def arc_i_block(model: Any, ids: Sequence[int]) -> Array:
    states = embed(model, ids)
    for step, layer in zip((1, 2, 4), model.block_encoder.layers, strict=True):
        padded = np.pad(states, ((step, step), (0, 0)))
        windows = np.stack([padded[o * step : o * step + len(ids)] for o in range(3)], axis=2)
        weight, bias = numbers(layer.weight), numbers(layer.bias)  # [H, H, 3]
        convolved = np.maximum(0, np.einsum("tio,hio->th", windows, weight) + bias)
        states = np.maximum(convolved, np.pad(convolved, ((0, step), (0, 0)))[step:])
    return unit(states.max(0))


def arc_i_document(model: Any, blocks: Array) -> Array:
    return unit(linear(model.document_encoder.projection, blocks.max(0)))


NAIVE: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
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
    assert np.abs(numbers(blocks) - expected).max() < 1e-5
    documents = [blocks[:5], blocks[:1], blocks[1:4]]
    padded = torch.full((3, 5, 6), 9.0)
    block_mask = torch.zeros(3, 5, dtype=torch.int64)
    for row, document in enumerate(documents):
        padded[row, : len(document)], block_mask[row, : len(document)] = document, 1
    with torch.no_grad():
        vectors = model.document_encoder(padded, block_mask)
    expected = [naive_document(model, numbers(document)) for document in documents]
    assert np.abs(numbers(vectors) - expected).max() < 1e-5


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
    with pytest.raises(ValueError, match=r"hidden_size\n.* a multiple of 2"):
        ENCODERS["han"].configuration(hidden_size=7)
    with pytest.raises(ValueError, match=r"paragraph_blocks\n.* greater than or equal to 0"):
        ENCODERS["han"].configuration(paragraph_blocks=-1)
