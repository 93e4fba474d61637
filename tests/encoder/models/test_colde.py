"""CoLDE: what its sections see, what padding and other documents may not change."""

import dataclasses
import math
from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from encoder.models.bidirectional import Bidirectional
from encoder.models.colde import (
    Aggregate,
    ChunkAttention,
    Colde,
    ColdeConfig,
    Sections,
    begin_as_mean,
)

AGGREGATES = get_args(Aggregate)
SMALL = ColdeConfig(
    vocabulary_size=50,
    block_length=8,
    max_blocks=6,
    max_sections=3,
    hidden_size=16,
    intermediate_size=32,
    attention_heads=2,
    sentence_layers=1,
    chunk_heads=2,
    lstm_size=12,
    dimension=10,
)


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


def two_sections(*documents: int) -> Sections:
    """Sections of documents of two each."""
    rows = torch.arange(2 * len(documents))
    return Sections(rows % 2, rows + 1 - 2 * (rows % 2))


def test_the_defaults_are_the_papers() -> None:
    config = ColdeConfig()
    assert (config.hidden_size, config.sentence_layers, config.block_length) == (768, 12, 512)
    assert (config.lstm_size, config.dimension, config.chunk_heads) == (512, 256, 4)
    assert (config.pooling, config.aggregate) == ("cls", "lstm")


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_unit_norm_from_tokens(aggregate: Aggregate) -> None:
    ids = torch.randint(1, 50, (3, 4, 6))
    vectors = small(aggregate=aggregate)(ids, torch.ones_like(ids))
    assert vectors.shape == (3, 10)
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(3), atol=1e-5)


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_padding_never_counts(aggregate: Aggregate) -> None:
    encoder = small(aggregate=aggregate).document_encoder
    vectors, mask = chunks(2, 5, 1, 3)
    sections = two_sections(0, 1)
    together = encoder(vectors, mask, sections)
    for first in (0, 2):
        pair = slice(first, first + 2)
        longest = int(mask[pair].sum(1).max())
        alone = encoder(vectors[pair, :longest], mask[pair, :longest], two_sections(0))
        assert torch.allclose(together[pair], alone, atol=1e-5)


def test_a_section_sees_its_successor_and_no_other_document() -> None:
    encoder = small().document_encoder
    vectors, mask = chunks(3, 2, 3, 2)
    sections = two_sections(0, 1)
    before = encoder(vectors, mask, sections)
    changed = vectors.clone()
    changed[1, 0] = -changed[1, 0]  # in the second section of the first document
    after = encoder(changed, mask, sections)
    assert (before[0] - after[0]).abs().max() > 1e-3  # whose first section asks it
    assert torch.equal(before[2:], after[2:])


def test_an_uncut_document_asks_itself() -> None:
    encoder = small().document_encoder
    vectors, mask = chunks(4, 2)
    itself = Sections(torch.zeros(2, dtype=torch.int64), torch.arange(2))
    assert torch.allclose(encoder(vectors, mask), encoder(vectors, mask, itself), atol=1e-6)


def test_sections_and_chunks_are_told_apart_by_their_numbers() -> None:
    encoder = small().document_encoder
    vectors, _ = chunks(3, 3)
    same = vectors[:1].expand(2, -1, -1)
    embedded = encoder.embed(same, two_sections(0).numbers)
    assert (embedded[0] - embedded[1]).abs().max() > 1e-2
    for section, row in enumerate(embedded):
        place = encoder.section_embedding.weight[section] + encoder.chunk_embedding.weight[2]
        assert torch.allclose(row[2], encoder.embedding_norm(same[0, 2] + place), atol=1e-6)


def test_numbers_that_training_never_saw_add_nothing() -> None:
    torch.manual_seed(0)
    encoder = Colde(SMALL).document_encoder
    assert not encoder.chunk_embedding.weight.any()
    assert not encoder.section_embedding.weight.any()


def test_chunk_attention_is_the_formula() -> None:
    torch.manual_seed(2)
    attention = ChunkAttention(4, 2)
    queries, keys = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    query, key, value = (
        layer(states)[0].detach()
        for layer, states in (
            (attention.query, queries),
            (attention.key, keys),
            (attention.value, keys),
        )
    )
    context = torch.zeros(2, 4)
    for head in (slice(0, 2), slice(2, 4)):
        for i in range(2):
            scores = [float(query[i, head] @ key[j, head]) / math.sqrt(2) for j in (0, 1)]
            below = sum(map(math.exp, scores))
            for j, score in enumerate(scores):
                context[i, head] += math.exp(score) / below * value[j, head]
    found = attention(queries, keys, mask)[0]
    assert torch.allclose(found, attention.output(context), atol=1e-5)
    weights = attention.weights(queries, keys, mask)
    assert torch.allclose(weights.sum(-1), torch.ones(1, 2, 2))
    assert weights[..., 2].max() < 1e-6


def test_the_bi_lstm_is_torchs() -> None:
    torch.manual_seed(3)
    ours, theirs = Bidirectional(nn.LSTM, 5, 6), nn.LSTM(5, 3, batch_first=True, bidirectional=True)
    weights = dict(ours.forwards.state_dict())
    weights |= {f"{name}_reverse": t for name, t in ours.backwards.state_dict().items()}
    theirs.load_state_dict(weights)
    states, lengths = torch.randn(3, 4, 5), [2, 4, 1]
    mask = torch.tensor([[1.0] * n + [0.0] * (4 - n) for n in lengths])
    packed = pack_padded_sequence(states, torch.tensor(lengths), True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
    assert torch.allclose(ours(states, mask) * mask[:, :, None], expected, atol=1e-6)


@pytest.mark.parametrize(("aggregate", "matters"), [("lstm", True), ("mean", False)])
def test_order_matters_to_the_lstm_alone(aggregate: Aggregate, matters: bool) -> None:
    encoder = small(aggregate=aggregate).document_encoder
    vectors, mask = chunks(4)
    difference = (encoder(vectors, mask) - encoder(vectors.flip(1), mask)).abs().max()
    assert (difference > 1e-3) == matters


def test_without_lstm_a_section_is_the_mean_of_what_has_its_positions() -> None:
    """The paper's CoLDE-LSTM (4.5.2): neither attention nor Bi-LSTM, and everything else."""
    model = small(aggregate="embedded_mean")
    encoder, (vectors, mask) = model.document_encoder, chunks(3, 2)
    assert not any(name.startswith(("attention", "lstm")) for name, _ in encoder.named_parameters())
    found = encoder(vectors, mask, two_sections(0))
    for section, size in enumerate((3, 2)):
        states = [
            encoder.embedding_norm(
                vectors[section, chunk]
                + encoder.chunk_embedding.weight[chunk]
                + encoder.section_embedding.weight[section]
            )
            for chunk in range(size)
        ]
        expected = F.normalize(encoder.projection(torch.stack(states).mean(0)), dim=-1)
        assert torch.allclose(found[section], expected, atol=1e-5)
        own, number = vectors[section, :size], torch.tensor(section)
        (read,) = model.section_reader(own, number, own, number)
        assert torch.allclose(read, expected, atol=1e-5)


def test_without_positions_only_what_stands_beside_a_chunk_tells_where_it_is() -> None:
    """The paper's CoLDE-Aug (4.5.1) has no embeddings of section and chunk."""
    encoder = small(positions=False).document_encoder
    assert not any("chunk_emb" in name or "section_emb" in name for name in encoder.state_dict())
    vectors, mask = chunks(4)
    assert torch.equal(encoder.embed(vectors), encoder.embedding_norm(vectors))
    assert torch.equal(encoder.embed(vectors, torch.tensor([2])), encoder.embed(vectors))
    assert (encoder(vectors, mask) - encoder(vectors.flip(1), mask)).abs().max() > 1e-3


@pytest.mark.parametrize("aggregate", ["mean", "lstm_and_mean"])
def test_it_can_begin_as_the_mean(aggregate: Aggregate) -> None:
    model = small(aggregate=aggregate, dimension=16)
    begin_as_mean(model.document_encoder)
    vectors, mask = chunks(3, 3)
    expected = F.normalize(vectors.mean(1), dim=-1)
    assert torch.allclose(model.document_encoder(vectors, mask), expected, atol=1e-6)


def test_what_has_no_mean_cannot_begin_as_one() -> None:
    for aggregate in ("lstm", "embedded_mean"):
        with pytest.raises(ValueError, match=f"aggregate='{aggregate}' cannot begin"):
            begin_as_mean(small(aggregate=aggregate).document_encoder)
    with pytest.raises(ValueError, match="takes hidden_size dimensions"):
        begin_as_mean(small(aggregate="mean").document_encoder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aggregate": "sum"}, "aggregate must be one of"),
        ({"aggregate": "mean", "positions": False}, "positions = false goes with attention"),
        ({"pooling": "max"}, "pooling must be"),
        ({"chunk_heads": 3}, "no multiple of 3 chunk_heads"),
        ({"lstm_size": 7}, "lstm_size must be even, not 7"),
    ],
)
def test_sizes_that_do_not_fit(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)
