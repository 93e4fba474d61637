"""Each loss against the same formula written as loops."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from training import objectives
from training.batch import DocumentArrays, collate
from training.losses import (
    BlockHead,
    JointHead,
    WordHead,
    block_loss,
    contrastive,
    joint_losses,
    masked_block_prediction,
    masked_word_prediction,
    pair_cosine,
    pair_cross_entropy,
    relation_distillation,
    supervised_contrastive,
    word_loss,
)
from training.models.smith import Smith

VOCABULARY = objectives.Vocabulary(size=50, mask_token=3, special_tokens=(0, 1, 2, 3))


def test_words_are_predicted_in_their_places(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    head, texts = WordHead(model.config), collate(documents).texts
    assert texts is not None
    words = torch.full_like(texts.input_ids, -1)
    words[0, 1], words[4, 2] = 17, 29
    states = model.block_encoder.token_states(texts.input_ids, texts.attention_mask)
    expected = masked_word_prediction(
        head(torch.stack([states[0, 1], states[4, 2]])),
        model.block_encoder.token_embedding.weight,
        head.bias,
        torch.tensor([17, 29]),
    )
    assert word_loss(model, head, texts, words).item() == pytest.approx(expected.item())
    nothing = word_loss(model, head, texts, torch.full_like(words, -1))
    nothing.backward()
    assert nothing.item() == 0


def test_blocks_are_predicted_from_what_is_left(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    head, batch = BlockHead(model.config), collate(documents)
    assert head.masked_block.norm().item() == pytest.approx(1.0)
    masked = torch.zeros_like(batch.block_mask).bool()
    masked[3, 5], masked[7, 2], masked[2, 2] = True, True, True  # all from the cache
    vectors = batch.block_vectors.clone()
    computed = model.block_encoder(batch.texts.input_ids, batch.texts.attention_mask)
    vectors[batch.texts.documents, batch.texts.places] = computed
    hidden = vectors.clone()
    hidden[masked] = head.masked_block
    states = model.document_encoder.block_states(hidden, batch.block_mask)
    expected = masked_block_prediction(states[masked], vectors[masked])
    found = block_loss(model, head, batch, masked)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert block_loss(model, head, batch, torch.zeros_like(masked)).item() == 0


def test_words_and_blocks_of_one_batch_are_predicted_together(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model, batch = tiny_model(), collate(documents)
    head, texts = JointHead(model.config), batch.texts
    assert texts is not None
    words = torch.full_like(texts.input_ids, -1)
    words[0, 1], words[4, 2] = 17, 29
    masked = torch.zeros_like(batch.block_mask).bool()
    masked[texts.documents[0], texts.places[0]] = masked[3, 5] = masked[7, 2] = True
    apart = word_loss(model, head.words, texts, words) + block_loss(
        model, head.blocks, batch, masked
    )
    found = sum(joint_losses(model, head, batch, words, masked).values(), torch.zeros(()))
    assert found.item() == pytest.approx(apart.item(), rel=1e-5)
    task = objectives.joint_task(batch, VOCABULARY, (0.5, 2), head, objectives.step_generator(0, 1))
    task.loss(model).backward()
    level = model.document_encoder
    read = [model.block_encoder, level.layers, level.position_embedding, head]
    for parameter in [parameter for part in read for parameter in part.parameters()]:
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


def test_pretraining_learns_what_can_be_learned(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    batch = collate(documents)
    assert batch.texts is not None
    word_head, block_head = WordHead(model.config), BlockHead(model.config)
    generator = torch.Generator().manual_seed(1)
    tasks = (
        objectives.masked_words_task(batch.texts, VOCABULARY, 0.3, word_head, generator),
        objectives.masked_blocks_task(batch, 2, block_head, generator),
    )
    parameters = [*model.parameters(), *word_head.parameters(), *block_head.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=3e-3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        both = [task.loss(model) for task in tasks]
        (both[0] + both[1]).backward()  # equation 7
        optimiser.step()
        losses.append([loss.item() for loss in both])
    assert losses[0][0] == pytest.approx(math.log(50), abs=0.5)
    assert losses[-1][0] < losses[0][0] / 2
    assert losses[-1][1] < losses[0][1] / 2
    assert block_head.masked_block.grad is not None
    assert word_head.bias.grad is not None


def unit(rows: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64), dim=1)


def test_pair_cross_entropy_is_the_formula() -> None:
    cosines, labels = [0.9, -0.2, 0.1], [1, 0, 1]
    expected = 0.0
    for cosine, label in zip(cosines, labels, strict=True):
        p = 1 / (1 + math.exp(-6.0 * cosine))
        expected -= (label * math.log(p) + (1 - label) * math.log(1 - p)) / 3
    found = pair_cross_entropy(torch.tensor(cosines), torch.tensor(labels), 6.0)
    assert found.item() == pytest.approx(expected)
    assert pair_cross_entropy(torch.tensor([0.5]), torch.tensor([1]), 2.0).item() == pytest.approx(
        math.log(1 + math.exp(-1.0))
    )


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
