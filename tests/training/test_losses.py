"""Each loss against the same formula written as loops."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training.losses import (
    contrastive,
    masked_block_prediction,
    pair_cosine,
    pair_cross_entropy,
    relation_distillation,
    supervised_contrastive,
)


def unit(rows: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64), dim=1)


def test_pair_cross_entropy_is_the_formula() -> None:
    cosines, labels = [0.9, -0.2, 0.1], [1, 0, 1]
    expected = 0.0
    for cosine, label in zip(cosines, labels, strict=True):
        p = 1 / (1 + math.exp(-6.0 * cosine))
        expected -= (label * math.log(p) + (1 - label) * math.log(1 - p)) / 3
    found = pair_cross_entropy(torch.tensor(cosines), torch.tensor(labels))
    assert found.item() == pytest.approx(expected)


def test_pair_cosine_is_that_of_torch() -> None:
    left, right = unit(6, 5, 1), unit(6, 5, 2)
    labels = torch.tensor([1, 0, 0, 1, 0, 0])
    cosines = (left * right).sum(1)
    assert (cosines[labels == 0] < 0).any()
    assert (cosines[labels == 0] > 0).any()
    expected = F.cosine_embedding_loss(left, right, 2 * labels - 1)
    assert pair_cosine(cosines, labels).item() == pytest.approx(expected.item())


def naive_way(
    scores: list[list[float]], positives: list[list[bool]], ignored: list[list[bool]]
) -> float:
    rows = []
    for score, positive, left_out in zip(scores, positives, ignored, strict=True):
        negatives = [
            s for s, p, i in zip(score, positive, left_out, strict=True) if not p and not i
        ]
        losses = [
            -math.log(math.exp(s) / (math.exp(s) + sum(math.exp(n) for n in negatives)))
            for s, p in zip(score, positive, strict=True)
            if p
        ]
        if losses:
            rows.append(sum(losses) / len(losses))
    return sum(rows) / len(rows)


def test_contrastive_is_the_formula_both_ways() -> None:
    queries, candidates = unit(3, 4, seed=1), unit(5, 4, seed=2)
    positives = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]).bool()
    ignored = torch.tensor([[0, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    scores = queries @ candidates.T / 0.2
    there = naive_way(scores.tolist(), positives.tolist(), ignored.tolist())
    back = naive_way(scores.T.tolist(), positives.T.tolist(), ignored.T.tolist())
    found = contrastive(scores, positives, ignored)
    assert found.item() == pytest.approx((there + back) / 2)


def test_contrastive_without_a_negative_is_zero() -> None:
    vectors = unit(1, 4, seed=5).requires_grad_()
    loss = contrastive(vectors @ unit(1, 4, seed=6).T / 0.05, torch.ones(1, 1).bool())
    loss.backward()
    assert loss.item() == 0
    assert vectors.grad is not None
    assert torch.isfinite(vectors.grad).all()


def test_supervised_contrastive_is_the_formula_of_colde() -> None:
    vectors, labels, temperature = unit(6, 5, seed=7), [1, 1, 0, 1, 2, 0], 0.3
    rows = []
    for i in range(6):
        others = [k for k in range(6) if k != i]
        positives = [j for j in others if labels[j] == labels[i]]
        below = sum(math.exp(vectors[i] @ vectors[k] / temperature) for k in others)
        if positives:
            rows.append(
                sum(
                    -math.log(math.exp(vectors[i] @ vectors[j] / temperature) / below)
                    for j in positives
                )
                / len(positives)
            )
    found = supervised_contrastive(vectors, torch.tensor(labels), temperature)
    assert len(rows) == 5  # the sample of label 2 has no positive
    assert found.item() == pytest.approx(sum(rows) / len(rows))


def test_relation_distillation_is_the_formula() -> None:
    vectors = unit(4, 5, seed=8)
    teacher = torch.rand(4, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    expected = 0.0
    for i in range(4):
        others = [j for j in range(4) if j != i]
        t = [math.exp(teacher[i, j] / 0.5) for j in others]
        s = [math.exp(vectors[i] @ vectors[j] / 0.2) for j in others]
        for a, b in zip(t, s, strict=True):
            expected += a / sum(t) * (math.log(a / sum(t)) - math.log(b / sum(s))) / 4
    found = relation_distillation(vectors, teacher, 0.2, 0.5)
    assert found.item() == pytest.approx(expected)


def test_masked_block_prediction_is_equations_4_to_6() -> None:
    predicted, blocks = unit(4, 3, seed=11) * 2, unit(4, 3, seed=12)
    expected = 0.0
    for j in range(4):
        below = sum(math.exp(predicted[j] @ blocks[r]) for r in range(4))
        expected -= math.log(math.exp(predicted[j] @ blocks[j]) / below) / 4
    assert masked_block_prediction(predicted, blocks).item() == pytest.approx(expected)
