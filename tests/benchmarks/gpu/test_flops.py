"""The count of operations against PyTorch's own, and against a sum by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.flops import document_flops
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.export.create import load_model, model_config
from encoder.models.smith import Smith, SmithConfig


def counted(model: torch.nn.Module, blocks: int, length: int, terms: int) -> int:
    ids = torch.ones(1, blocks, length, dtype=torch.int64)
    features = torch.rand(1, terms) if terms else None
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(ids, torch.ones_like(ids), features)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", ["tiny_checkpoint", "tiny_terms"])
def test_it_is_what_pytorch_counts(name: str, request: pytest.FixtureRequest) -> None:
    checkpoint = load_checkpoint(request.getfixturevalue(name))
    model, config = load_model(checkpoint), model_config(checkpoint)
    expected = counted(model, 5, checkpoint.block_length, config.term_width)
    found = document_flops(checkpoint, [checkpoint.block_length] * 5)
    # It multiplies all hidden states where the model reads some alone: less than a per cent here.
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("pooled", [1, 3])
def test_pooled_layers_count_as_pytorch_counts_them(tiny_checkpoint: Path, pooled: int) -> None:
    sizes = {"pooling": "mean", "pooled_layers": pooled, "pooled_tokens": 5}
    config = replace(SmithConfig(), **sizes)
    checkpoint = of_the_paper(load_checkpoint(tiny_checkpoint))
    checkpoint = replace(checkpoint, model={**checkpoint.model, **sizes})
    expected = counted(Smith(config).eval(), 64, 32, 0)
    assert document_flops(checkpoint, [32] * 64) == expected


def of_the_paper(tiny: Checkpoint) -> Checkpoint:
    config = SmithConfig()
    names = {one: getattr(config, one) for one in tiny.model if hasattr(config, one)}
    sizes = {"block_length": 32, "max_blocks": 64, "dimension": 256, "block_dimension": 256}
    return replace(tiny, model=names, **sizes)


def test_the_size_of_the_paper_by_hand(tiny_checkpoint: Path) -> None:
    checkpoint = of_the_paper(load_checkpoint(tiny_checkpoint))
    layer_of_a_token = 4 * 256 * 256 + 2 * 256 * 1024  # multiply-adds, without attention
    sentences = 64 * (32 * 6 * (layer_of_a_token + 2 * 32 * 256) + 256 * 256)
    document = 64 * 3 * (layer_of_a_token + 2 * 64 * 256) + 256 * 256
    assert document_flops(checkpoint, [32] * 64) == 2 * (sentences + document)
    model = Smith(SmithConfig()).eval()
    assert counted(model, 64, 32, 0) == 2 * (sentences + document)


def test_another_architecture_is_refused(tiny_checkpoint: Path) -> None:
    other = replace(load_checkpoint(tiny_checkpoint), architecture="dssm")
    with pytest.raises(ValueError, match="dssm"):
        document_flops(other, [16])
