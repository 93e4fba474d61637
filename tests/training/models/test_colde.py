"""CoLDE: what its sections see, what padding and other documents may not change."""

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.models.colde import Colde, ColdeConfig

SMALL = ColdeConfig(
    vocabulary_size=50, block_length=8, max_blocks=6, max_sections=3, hidden_size=16,
    intermediate_size=32, attention_heads=2, sentence_layers=1, chunk_heads=2, lstm_size=12,
    dimension=10,
)  # fmt: skip


def small(**changes: object) -> Colde:
    torch.manual_seed(0)
    model = Colde(dataclasses.replace(SMALL, **changes)).eval()
    with torch.no_grad():  # away from the small start, so that differences show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.5 if parameter.ndim > 1 else 0.05))
    return model


def chunks(*sizes: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Chunk vectors [D, S, H] of unit norm and their mask; padding holds large numbers."""
    torch.manual_seed(seed)
    vectors = F.normalize(torch.randn(len(sizes), max(sizes), 16), dim=-1)
    mask = torch.zeros(len(sizes), max(sizes))
    for row, size in enumerate(sizes):
        mask[row, :size] = 1
        vectors[row, size:] = 1e3
    return vectors, mask


def test_numbers_that_training_never_saw_add_nothing() -> None:
    torch.manual_seed(0)
    encoder = Colde(SMALL).document_encoder
    assert not encoder.chunk_embedding.weight.any()
    assert not encoder.section_embedding.weight.any()


def test_without_positions_only_neighbours_tell_the_order() -> None:
    """The paper's CoLDE-Aug (4.5.1) has no embeddings of section and chunk."""
    encoder = small(positions=False).document_encoder
    assert not any("chunk_emb" in name or "section_emb" in name for name in encoder.state_dict())
    vectors, mask = chunks(4)
    assert torch.equal(encoder.embed(vectors), encoder.embedding_norm(vectors))
    assert torch.equal(encoder.embed(vectors, torch.tensor([2])), encoder.embed(vectors))
    assert (encoder(vectors, mask) - encoder(vectors.flip(1), mask)).abs().max() > 1e-3


def test_what_can_begin_as_the_mean() -> None:
    vectors, mask = chunks(3, 3)
    expected = F.normalize(vectors.mean(1), dim=-1)
    for aggregate in ("mean", "lstm_and_mean"):
        model = small(aggregate=aggregate, dimension=16)
        model.begin_as_mean()
        assert torch.allclose(model.document_encoder(vectors, mask), expected, atol=1e-6)
    for aggregate in ("lstm", "embedded_mean"):
        with pytest.raises(ValueError, match=f"aggregate='{aggregate}' cannot begin"):
            small(aggregate=aggregate).begin_as_mean()
    with pytest.raises(ValueError, match="takes hidden_size dimensions"):
        small(aggregate="mean").begin_as_mean()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate": "sum"}, r"aggregate\n.* should be"),
        ({"aggregate": "mean", "positions": False}, "positions = false goes with attention"),
        ({"pooling": "max"}, r"pooling\n.* should be"),
        ({"chunk_heads": 3}, "no multiple of 3 chunk_heads"),
        ({"lstm_size": 7}, r"lstm_size\n.* a multiple of 2"),
    ],
)
def test_sizes_that_do_not_fit(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)
