import dataclasses

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from encoder.models.smith import Combine, Pooling, Smith, SmithConfig, begin_as_mean

COMBINATIONS: list[Combine] = ["normal", "sum_concat", "mean_concat", "attention"]
POOLINGS: list[Pooling] = ["cls", "mean"]
SMALL = SmithConfig(
    vocabulary_size=50,
    block_length=8,
    max_blocks=6,
    hidden_size=16,
    intermediate_size=32,
    attention_heads=2,
    sentence_layers=2,
    document_layers=2,
    dimension=12,
    attention_size=5,
)


def small(**changes: object) -> Smith:
    torch.manual_seed(0)
    model = Smith(dataclasses.replace(SMALL, **changes)).eval()
    with torch.no_grad():  # away from the small start, so that differences show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.5 if parameter.ndim > 1 else 0.05))
    return model


def documents(count: int = 3, blocks: int = 4, tokens: int = 6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    ids = torch.randint(1, 50, (count, blocks, tokens))
    return ids, torch.ones_like(ids)


def test_the_defaults_are_the_papers() -> None:
    config = SmithConfig()
    sizes = (config.sentence_layers, config.hidden_size, config.attention_heads)
    assert sizes == (6, 256, 4)
    assert config.document_layers == 3
    assert config.block_length * config.max_blocks == 2_048


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_unit_norm_and_shape(combine: Combine, pooling: Pooling) -> None:
    vectors = small(combine=combine, pooling=pooling)(*documents())
    assert vectors.shape == (3, 12)
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(3), atol=1e-5)


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_never_counts(combine: Combine, pooling: Pooling) -> None:
    model = small(combine=combine, pooling=pooling)
    ids, mask = documents()
    padded_ids = F.pad(ids, (0, 2, 0, 2), value=7)  # two tokens a block, two blocks a document
    padded_mask = F.pad(mask, (0, 2, 0, 2), value=0)
    assert torch.allclose(model(ids, mask), model(padded_ids, padded_mask), atol=1e-5)


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_batch_mates_change_nothing(combine: Combine) -> None:
    model = small(combine=combine)
    ids, mask = documents()
    alone = torch.cat([model(ids[row : row + 1], mask[row : row + 1]) for row in range(3)])
    assert torch.allclose(model(ids, mask), alone, atol=1e-5)


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_reach_every_parameter(combine: Combine, pooling: Pooling) -> None:
    model = small(combine=combine, pooling=pooling, block_length=6, max_blocks=4).train()
    ids = torch.arange(50).repeat(2)[:96].reshape(4, 4, 6)
    model(ids, torch.ones_like(ids))[:, 0].sum().backward()
    for name, parameter in model.named_parameters():
        if name.endswith("query_key_value.bias"):
            continue  # a bias of the keys shifts every logit of a query alike
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_order_of_blocks_counts() -> None:
    model = small()
    ids, mask = documents()
    assert not torch.allclose(model(ids, mask), model(ids.flip(1), mask), atol=1e-3)


def test_cls_and_mean_pooling_differ() -> None:
    ids, mask = documents()
    cls, mean = small(pooling="cls"), small(pooling="mean")
    mean.load_state_dict(cls.state_dict())
    assert not torch.allclose(cls(ids, mask), mean(ids, mask), atol=1e-3)


@pytest.mark.parametrize("combine", ["mean_concat", "attention"])
def test_begins_as_the_mean_of_the_block_vectors(combine: Combine) -> None:
    model = small(combine=combine, dimension=16)
    begin_as_mean(model.document_encoder)
    blocks = F.normalize(torch.randn(2, 5, 16), dim=-1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = F.normalize(torch.stack([blocks[0].mean(0), blocks[1, :3].mean(0)]), dim=-1)
    assert torch.allclose(model.document_encoder(blocks, mask), expected, atol=1e-5)


@pytest.mark.parametrize("changes", [{"combine": "normal", "dimension": 16}, {"dimension": 12}])
def test_what_cannot_begin_as_the_mean(changes: dict[str, object]) -> None:
    encoder = small(**({"combine": "attention"} | changes)).document_encoder
    with pytest.raises(ValueError, match="mean"):
        begin_as_mean(encoder)


def test_attention_prefers_the_block_it_points_to() -> None:
    """h . softmax(h W v), equation of section 4.1.4, by hand."""
    encoder = small(combine="attention", dimension=16).document_encoder
    blocks = F.normalize(torch.randn(1, 3, 16), dim=-1)
    logits = blocks @ encoder.attention_projection.weight.T @ encoder.attention_vector.weight.T
    expected = (blocks * logits.softmax(1)).sum(1)
    with torch.no_grad():
        encoder.projection.weight.zero_()
        encoder.projection.bias.zero_()
        encoder.projection.weight[:, :16] = torch.eye(16)
    assert torch.allclose(
        encoder(blocks, torch.ones(1, 3)), F.normalize(expected, dim=-1), atol=1e-5
    )


@pytest.mark.parametrize("wrong", [{"pooling": "max"}, {"combine": "sum"}, {"attention_heads": 3}])
def test_wrong_choices_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"pooling|combine|heads"):
        small(**wrong)
