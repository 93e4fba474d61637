import dataclasses
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.kit.towers import encode_tokens
from training.export.graphs import export_graph
from training.export.quantise import arrays_of, quantise
from training.models.smith import Combine, Smith, SmithConfig

SMALL = SmithConfig(
    vocabulary_size=50, block_length=8, max_blocks=6, hidden_size=16, intermediate_size=32,
    attention_heads=2, sentence_layers=2, document_layers=2, dimension=12, attention_size=5,
)  # fmt: skip


def small(**changes: object) -> Smith:
    torch.manual_seed(0)
    model = Smith(dataclasses.replace(SMALL, **changes)).eval()
    with torch.no_grad():  # away from the small start, so that differences show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.5 if parameter.ndim > 1 else 0.05))
    return model


POOLED = {"pooling": "mean", "sentence_layers": 3, "pooled_tokens": 4}


@pytest.mark.parametrize(
    "changes",
    [
        *({"combine": name} for name in get_args(Combine)),
        {"combine": "mean_concat", "pooling": "mean"},
        {**POOLED, "pooled_layers": 2},
    ],
    ids=str,
)
def test_gradients_reach_every_parameter(changes: dict[str, Any]) -> None:
    model = small(**({"block_length": 6, "max_blocks": 4} | changes)).train()
    ids = torch.arange(50).repeat(2)[:96].reshape(4, 4, 6)
    encode_tokens(model, ids, torch.ones_like(ids))[:, 0].sum().backward()
    for name, parameter in model.named_parameters():
        if name.endswith("query_key_value.bias"):
            continue  # a bias of the keys shifts every logit of a query alike
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_what_can_begin_as_the_mean_of_the_block_vectors() -> None:
    blocks = F.normalize(torch.randn(2, 5, 16), dim=-1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = F.normalize(torch.stack([blocks[0].mean(0), blocks[1, :3].mean(0)]), dim=-1)
    for combine in ("mean_concat", "attention"):
        model = small(combine=combine, dimension=16)
        model.begin_as_mean()
        assert torch.allclose(model.document_encoder(blocks, mask), expected, atol=1e-5)
    for combine, dimension in (("normal", 16), ("attention", 12)):
        with pytest.raises(ValueError, match="mean"):
            small(combine=combine, dimension=dimension).begin_as_mean()


def test_averages_attend_to_tokens() -> None:
    """By PyTorch's own attention, which projects the averages instead of averaging projections."""
    model = small(**POOLED, pooled_layers=1).block_encoder
    torch.manual_seed(1)
    ids, mask = (
        torch.randint(1, 50, (4, 6)),
        torch.tensor([[1] * 6, [1] * 6, [1] * 5 + [0], [1] * 3 + [0] * 3]),
    )
    states = model.token_states(ids, mask)
    layer = model.layers[2]
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    attention.in_proj_weight, attention.in_proj_bias = (
        layer.attention.query_key_value.weight,
        layer.attention.query_key_value.bias,
    )
    attention.out_proj = layer.attention.output
    expected = []
    for row, tokens in zip(states, mask.sum(1).tolist(), strict=True):
        kept = row[None, :tokens]
        groups = [part.mean(1) for part in kept.split(4, dim=1)]
        group = torch.stack(groups, dim=1)
        attended, _ = attention(group, kept, kept)
        group = layer.attention_norm(group + attended)
        group = layer.output_norm(group + layer.output(F.gelu(layer.intermediate(group))))
        sizes = torch.tensor([part.shape[1] for part in kept.split(4, dim=1)])
        pooled = (group[0] * sizes[:, None]).sum(0) / tokens
        expected.append(F.normalize(model.projection(pooled), dim=-1))
    assert torch.allclose(model(ids, mask), torch.stack(expected), atol=1e-5)


def test_groups_of_padding_change_nothing() -> None:
    model = small(**POOLED, pooled_layers=2).block_encoder
    ids = torch.randint(1, 50, (1, 3))
    alone = model(ids, torch.ones_like(ids))
    padded = model(F.pad(ids, (0, 5)), F.pad(torch.ones_like(ids), (0, 5)))
    assert torch.allclose(padded, alone, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pooled_layers": 3, "pooled_tokens": 4}, "pooled_layers must be from 0 to the 2"),
        ({"pooled_layers": 1, "pooled_tokens": 1}, "pooled_tokens must be above 1"),
        ({"pooled_tokens": 4}, "pooled_tokens must be above 1"),
        ({"pooled_layers": 1, "pooled_tokens": 4, "pooling": "cls"}, "pooled_layers take"),
        ({"pooling": "max"}, "pooling"),
        ({"combine": "sum"}, "combine"),
        ({"attention_heads": 3}, "heads"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**({"pooling": "mean"} | changes))


@pytest.mark.slow
def test_graphs_compute_it_for_every_length(tmp_path: Path) -> None:
    model: Smith = small(**POOLED, pooled_layers=2)
    length = {0: torch.export.Dim("blocks"), 1: torch.export.Dim("tokens", min=2, max=8)}
    ids = torch.ones(2, 8, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    graph = tmp_path / "graph.onnx"
    export_graph(model.block_encoder, inputs, dict.fromkeys(inputs, length), ["vectors"], graph)
    samples = [_inputs(torch.randint(1, 50, (1, 8)))]
    quantise(graph, tmp_path / "int8.onnx", samples)
    with torch.no_grad():
        for tokens in (2, 3, 4, 5, 8):
            ids = torch.randint(1, 50, (3, tokens))
            expected = model.block_encoder(ids, torch.ones_like(ids)).numpy()
            for file, error in ((graph, 1e-5), (tmp_path / "int8.onnx", 0.1)):
                session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
                found = session.run(None, _inputs(ids))[0]
                assert np.abs(found - expected).max() < error
    linear = [
        name for name in arrays_of(onnx.load(tmp_path / "int8.onnx").graph) if "_int8" in name
    ]
    assert len(linear) == 4 * 3  # of every layer


def _inputs(ids: Tensor) -> dict[str, np.ndarray]:
    return {"input_ids": ids.numpy(), "attention_mask": np.ones(ids.shape, np.int64)}
