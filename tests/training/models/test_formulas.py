"""SMITH, CoLDE and Match-Ignition written once more in NumPy, one document after another.

From the formulas of the papers, without batches, masks or padding; ERNIE-Doc is compared in
`test_ernie_doc.py`.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from tests.kit.towers import encode_tokens
from training.models.colde import Colde, ColdeConfig, Sections
from training.models.layers import BlockEncoder
from training.models.match_ignition import MatchIgnition, MatchIgnitionConfig
from training.models.smith import Combine, Pooling, Smith, SmithConfig

Array = npt.NDArray[np.float64]
erf = np.vectorize(math.erf, otypes=[np.float64])
SIZES: dict[str, Any] = {
    "vocabulary_size": 50,
    "hidden_size": 8,
    "intermediate_size": 12,
    "attention_heads": 2,
}


def numbers(tensor: Tensor) -> Array:
    found: Array = tensor.detach().double().numpy()
    return found


def linear(layer: nn.Linear, x: Array) -> Array:
    product = x @ numbers(layer.weight).T
    return product if layer.bias is None else product + numbers(layer.bias)


def norm(layer: nn.LayerNorm, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + layer.eps)
    return scaled * numbers(layer.weight) + numbers(layer.bias)


def softmax(x: Array, axis: int = -1) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x)


def attend(query: Array, key: Array, value: Array, heads: int) -> tuple[Array, Array]:
    """softmax(Q K' / sqrt(d)) V of each head, side by side, and the mean of the weights."""
    parts, weights = [], []
    for q, k, v in zip(
        *(np.split(item, heads, axis=1) for item in (query, key, value)), strict=True
    ):
        weights.append(softmax(q @ k.T / math.sqrt(q.shape[1])))
        parts.append(weights[-1] @ v)
    return np.concatenate(parts, axis=1), np.mean(weights, axis=0)


def feed_forward(layer: Any, x: Array) -> Array:
    inner = linear(layer.intermediate, x)
    inner = 0.5 * inner * (1 + erf(inner / math.sqrt(2)))
    return norm(layer.output_norm, x + linear(layer.output, inner))


def transformer(layers: nn.ModuleList, x: Array, heads: int) -> Array:
    for layer in layers:
        query, key, value = np.split(linear(layer.attention.query_key_value, x), 3, axis=1)
        context, _ = attend(query, key, value, heads)
        x = norm(layer.attention_norm, x + linear(layer.attention.output, context))
        x = feed_forward(layer, x)
    return x


def block_vector(encoder: BlockEncoder, tokens: list[int]) -> Array:
    """SMITH, equation 1 and section 4.1.2."""
    table, places = numbers(encoder.token_embedding.weight), encoder.position_embedding.weight
    x = norm(encoder.embedding_norm, table[tokens] + numbers(places)[: len(tokens)])
    states = transformer(encoder.layers, x, encoder.config.attention_heads)
    pooled = states[0] if encoder.config.pooling == "cls" else states.mean(0)
    return unit(linear(encoder.projection, pooled))


def smith_vector(model: Smith, blocks: list[list[int]]) -> Array:
    """SMITH, sections 4.1.2 and 4.1.4."""
    level, config = model.document_encoder, model.config
    h = np.stack([block_vector(model.block_encoder, tokens) for tokens in blocks])
    x = norm(level.embedding_norm, h + numbers(level.position_embedding.weight)[: len(h)])
    document = transformer(level.layers, x, config.attention_heads)[0]
    if config.combine == "normal":
        return unit(linear(level.projection, document))
    if config.combine == "sum_concat":
        combined = h.sum(0)
    elif config.combine == "mean_concat":
        combined = h.mean(0)
    else:
        scores = linear(level.attention_vector, linear(level.attention_projection, h))
        combined = (softmax(scores, axis=0) * h).sum(0)
    return unit(linear(level.projection, np.concatenate([combined, document])))


def lstm(layer: nn.LSTM, inputs: Array) -> Array:
    """Return the states h_t: i, f, g, o are the gates of the layer, in this order."""
    from_input, from_state = numbers(layer.weight_ih_l0), numbers(layer.weight_hh_l0)
    bias = numbers(layer.bias_ih_l0 + layer.bias_hh_l0)
    h = c = np.zeros(layer.hidden_size)
    states = []
    for x in inputs:
        i, f, g, o = np.split(from_input @ x + from_state @ h + bias, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        states.append(h)
    return np.stack(states)


def colde_vector(model: Colde, section: int, sections: list[list[list[int]]]) -> Array:
    """CoLDE, sections 3.1 and 3.2: a section attends to the next one, the last to the first."""
    level = model.document_encoder
    if model.config.aggregate == "mean":
        vectors = [block_vector(model.block_encoder, tokens) for tokens in sections[section]]
        return unit(linear(level.projection, np.mean(vectors, axis=0)))
    chunks, embedded = [], []
    for number, blocks in enumerate(sections):
        vectors = np.stack([block_vector(model.block_encoder, tokens) for tokens in blocks])
        places = numbers(level.chunk_embedding.weight)[: len(vectors)]
        place = places + numbers(level.section_embedding.weight)[number]
        chunks.append(vectors)
        embedded.append(norm(level.embedding_norm, vectors + place))
    own, following = embedded[section], embedded[(section + 1) % len(sections)]
    if model.config.aggregate == "embedded_mean":  # CoLDE-LSTM of section 4.5.2
        return unit(linear(level.projection, own.mean(0)))
    attention = level.attention
    context, _ = attend(
        linear(attention.query, own),
        linear(attention.key, following),
        linear(attention.value, following),
        attention.heads,
    )
    joined = norm(level.attention_norm, own + linear(attention.output, context))
    there, back = lstm(level.lstm.forwards, joined), lstm(level.lstm.backwards, joined[::-1])[::-1]
    features = np.concatenate([there, back], axis=1).mean(0)
    if model.config.aggregate == "lstm_and_mean":
        features = np.concatenate([chunks[section].mean(0), features])
    return unit(linear(level.projection, features))


def match_logit(model: MatchIgnition, ids: list[int], types: list[int], words: list[bool]) -> float:
    """Match-Ignition, section 3.2: u by equation 8, r = A u; the words of least r are dropped."""
    encoder, config = model.cross_encoder, model.config
    x = numbers(encoder.token_embedding.weight)[ids] + numbers(encoder.type_embedding.weight)[types]
    x = norm(encoder.embedding_norm, x + numbers(encoder.position_embedding.weight)[: len(ids)])
    droppable, whole = np.array(words), len(ids)
    for number, layer in enumerate(encoder.layers, start=1):
        key, value = np.split(linear(layer.key_value, x), 2, axis=1)
        context, a = attend(linear(layer.query, x), key, value, config.attention_heads)
        x = norm(layer.attention_norm, x + linear(layer.attention_output, context))
        if number < len(encoder.layers):
            u = np.full(len(x), 1 / len(x))
            for _ in range(config.iterations):
                u = 0.85 * a.T @ u + 0.15 / len(x)
            left = max(3, int(whole * (1 - config.reduction) ** number))
            order = sorted(np.flatnonzero(droppable), key=lambda place, r=a @ u: r[place])
            kept = np.setdiff1d(np.arange(len(x)), order[: len(x) - left])
            x, droppable = x[kept], droppable[kept]
        x = feed_forward(layer, x)
    return float(linear(model.projection, x[0])[0])


def away_from_the_start(model: nn.Module) -> None:
    """Add random numbers to the weights, so that differences show."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.5 if parameter.ndim > 1 else 0.1))


def tensors(documents: list[list[list[int]]]) -> tuple[Tensor, Tensor]:
    """Return token ids and mask of documents [D, S, T]; padding holds any token."""
    shape = (len(documents), max(map(len, documents)), max(len(b) for d in documents for b in d))
    ids, mask = torch.full(shape, 7), torch.zeros(shape, dtype=torch.int64)
    for row, blocks in enumerate(documents):
        for place, tokens in enumerate(blocks):
            ids[row, place, : len(tokens)] = torch.tensor(tokens)
            mask[row, place, : len(tokens)] = 1
    return ids, mask


DOCUMENTS = [
    [[3, 14, 15, 9, 26], [5, 35], [8, 9, 7, 9, 3, 23]],
    [[27, 1, 8, 28]],
    [[18, 28, 45, 9], [4, 5, 23]],
]


@pytest.mark.parametrize("combine", ["normal", "sum_concat", "mean_concat", "attention"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_smith_is_its_formulas(combine: Combine, pooling: Pooling) -> None:
    config = SmithConfig(
        **SIZES, block_length=8, max_blocks=4, sentence_layers=2, document_layers=2,
        dimension=5, attention_size=3, combine=combine, pooling=pooling,
    )  # fmt: skip
    model = Smith(config).eval()
    away_from_the_start(model)
    expected = np.stack([smith_vector(model, blocks) for blocks in DOCUMENTS])
    assert np.abs(numbers(encode_tokens(model, *tensors(DOCUMENTS))) - expected).max() < 1e-5


@pytest.mark.parametrize("aggregate", ["lstm", "lstm_and_mean", "mean", "embedded_mean"])
def test_colde_is_its_formulas(aggregate: Any) -> None:
    config = ColdeConfig(
        **SIZES, block_length=8, max_blocks=4, max_sections=3, sentence_layers=1,
        chunk_heads=4, lstm_size=6, dimension=5, aggregate=aggregate,
    )  # fmt: skip
    model = Colde(config).eval()
    away_from_the_start(model)
    cut = [colde_vector(model, number, DOCUMENTS) for number in range(3)]
    following = Sections(torch.arange(3), torch.tensor([1, 2, 0]))
    found = numbers(encode_tokens(model, *tensors(DOCUMENTS), following))
    assert np.abs(found - np.stack(cut)).max() < 1e-5
    whole = [colde_vector(model, 0, [blocks]) for blocks in DOCUMENTS]  # attends to itself
    assert np.abs(numbers(encode_tokens(model, *tensors(DOCUMENTS))) - np.stack(whole)).max() < 1e-5


@pytest.mark.parametrize("reduction", [0.0, 0.1, 0.3])
@torch.no_grad()
def test_match_ignition_is_its_formulas(reduction: float) -> None:
    config = MatchIgnitionConfig(**SIZES, length=32, layers=3, reduction=reduction, iterations=5)
    model = MatchIgnition(config).eval()
    away_from_the_start(model)
    ids = [*range(10, 30), *range(40, 47)]
    types = [0] * 12 + [1] * 15
    special = [2, *[0] * 10, 1, *[0] * 14, 1]
    expected = match_logit(model, ids, types, [item == 0 for item in special])
    found = model(*(torch.tensor([item]) for item in (ids, types, special)))
    assert abs(float(found[0]) - expected) < 1e-4
