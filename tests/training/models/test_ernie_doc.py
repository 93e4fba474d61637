"""ERNIE-Doc: what its segments see, and what padding and other documents may not change."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.kit.towers import segment_vectors
from tests.training.models.test_formulas import Array, feed_forward, linear, norm, numbers, softmax
from training.models.ernie_doc import ErnieDoc, ErnieDocConfig

SMALL = ErnieDocConfig(
    vocabulary_size=50, block_length=6, max_blocks=8, hidden_size=8, intermediate_size=12,
    attention_heads=2, sentence_layers=2, memory_length=3, dimension=5,
)  # fmt: skip
# The rows of the paper's table 7; the first is also the second, which lacks an objective only.
ABLATIONS: dict[str, dict[str, Any]] = {
    "I": {},
    "III without retrospective feed": {"retrospective": False},
    "IV without enhanced recurrence": {"retrospective": False, "recurrence": "layer_below"},
    "V without recurrence": {"retrospective": False, "recurrence": "none"},
}
every_ablation = pytest.mark.parametrize("changes", ABLATIONS.values(), ids=ABLATIONS)


def small(**changes: Any) -> ErnieDoc:
    torch.manual_seed(0)
    model = ErnieDoc(dataclasses.replace(SMALL, **changes)).eval()
    with torch.no_grad():  # away from the small start, so that differences show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return model


def tokens(*lengths: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """One document of segments of these lengths: token ids and mask, both [1, S, T]."""
    torch.manual_seed(seed)
    ids = torch.randint(1, 50, (1, len(lengths), max(lengths)))
    mask = torch.zeros_like(ids)
    for place, length in enumerate(lengths):
        mask[0, place, :length] = 1
    return ids, mask


def attended(layer: Any, x: Array, memory: Array, config: ErnieDocConfig) -> Array:
    """softmax(q (k + a) / sqrt(d)) v over [memory o x], a by the distance of key and query."""
    attention, context = layer.attention, np.concatenate([memory, x])
    query = linear(attention.query, x)
    key, value = np.split(linear(attention.key_value, context), 2, axis=1)
    vectors = numbers(attention.distance_embedding.weight)
    # Row 0 is of the furthest key before a query.
    furthest = config.memory_length + config.block_length - 1
    heads = []
    for q, k, v in zip(
        *(np.split(a, config.attention_heads, 1) for a in (query, key, value)), strict=True
    ):
        scores = np.empty((len(x), len(context)))
        for i, j in np.ndindex(*scores.shape):
            scores[i, j] = q[i] @ (k[j] + vectors[j - len(memory) - i + furthest])
        heads.append(softmax(scores / np.sqrt(q.shape[1])) @ v)
    return linear(attention.output, np.concatenate(heads, axis=1))


def naive_states(model: ErnieDoc, segments: list[list[int]]) -> list[Array]:
    """Equations 1 to 3 and section 3.2: the states of each segment in the last phase."""
    config, encoder = model.config, model.block_encoder
    memory = [np.zeros((0, config.hidden_size)) for _ in encoder.layers]
    found: list[Array] = []
    for _ in range(2 if config.retrospective else 1):
        found = []
        for segment in segments:
            x = norm(encoder.embedding_norm, numbers(encoder.token_embedding.weight)[segment])
            for number, layer in enumerate(encoder.layers):
                below = x
                x = norm(layer.attention_norm, x + attended(layer, x, memory[number], config))
                x = feed_forward(layer, x)
                kept = {"same_layer": x, "layer_below": below, "none": x[:0]}[config.recurrence]
                memory[number] = np.concatenate([memory[number], kept])[-config.memory_length :]
            found.append(x)
    return found


@every_ablation
@pytest.mark.parametrize("lengths", [(6, 6, 6), (4, 2, 6, 5), (1,)], ids=str)
def test_states_are_those_of_the_formulas(
    changes: dict[str, Any], lengths: tuple[int, ...]
) -> None:
    model = small(**changes)
    ids, mask = tokens(*lengths)
    expected = naive_states(
        model, [ids[0, s, :length].tolist() for s, length in enumerate(lengths)]
    )
    found = model.segment_states(ids, mask)
    for states, rows, length in zip(found, expected, lengths, strict=True):
        assert np.abs(numbers(states[0, :length]) - rows).max() < 2e-5
    last = expected[-1][0] / np.linalg.norm(expected[-1][0])  # of [CLS]
    assert np.abs(numbers(segment_vectors(model, ids, mask))[0, -1] - last).max() < 1e-5
    projected = linear(model.document_encoder.projection, last)
    document = projected / np.linalg.norm(projected)
    assert np.abs(numbers(model(ids, mask))[0] - document).max() < 1e-5


@every_ablation
def test_padding_and_other_documents_change_nothing(changes: dict[str, Any]) -> None:
    model = small(**changes)
    documents = [tokens(6, 4, 6, seed=1), tokens(3, seed=2), tokens(2, 6, seed=3)]
    ids = torch.randint(1, 50, (3, 4, 6))  # any tokens in padding
    mask = torch.zeros_like(ids)
    for row, (own_ids, own_mask) in enumerate(documents):
        size = own_ids.shape[1:]
        ids[row, : size[0], : size[1]] = torch.where(
            own_mask[0] > 0, own_ids[0], ids[row, : size[0], : size[1]]
        )
        mask[row, : size[0], : size[1]] = own_mask[0]
    together = model(ids, mask)
    vectors = segment_vectors(model, ids, mask)
    for row, (own_ids, own_mask) in enumerate(documents):
        assert torch.allclose(together[row], model(own_ids, own_mask)[0], atol=1e-5)
        alone = segment_vectors(model, own_ids, own_mask)[0]
        assert torch.allclose(vectors[row, : len(alone)], alone, atol=1e-5)


@every_ablation
@pytest.mark.parametrize("bf16", [False, True])
def test_gradients_reach_every_parameter(changes: dict[str, Any], bf16: bool) -> None:
    model = small(**changes)
    ids, mask = tokens(6, 6, 6)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = model(ids, mask).float()[0, 0]
    loss.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []


def test_the_gradient_stops_at_the_memory() -> None:
    model = small()
    ids, mask = tokens(6, 6)
    ids[0, 0], ids[0, 1] = torch.arange(1, 7), torch.arange(11, 17)
    model(ids, mask)[0, 0].backward()
    gradient = model.block_encoder.token_embedding.weight.grad
    assert gradient is not None
    assert gradient[11:17].abs().amax(1).min() > 0
    assert not gradient[1:7].any()
    model.zero_grad()
    torch.stack(model.segment_states(ids, mask))[:, :, 0, 0].sum().backward()
    assert model.block_encoder.token_embedding.weight.grad[1:7].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_length": 0}, r"memory_length\n.* greater than 0"),
        ({"recurrence": "up"}, r"recurrence\n.* should be 'same_layer', 'layer_below' or 'none'"),
        ({"recurrence": "none"}, "retrospective = true takes a memory"),
        ({"block_length": 2}, r"block_length\n.* greater than or equal to 3"),
    ],
    ids=str,
)
def test_a_configuration_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


def test_what_the_model_cannot_do_is_refused() -> None:
    model = small()
    ids, mask = tokens(7)
    with pytest.raises(ValueError, match="a segment of 7 tokens: this model reads at most 6"):
        model(ids, mask)
    with pytest.raises(ValueError, match="no multiple of 3 heads"):
        small(attention_heads=3)
