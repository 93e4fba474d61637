"""Gradients of a batch in chunks are the gradients of the batch."""

from collections.abc import Callable

import torch
from torch import Tensor

from encoder.models.colde import Colde
from encoder.models.smith import Smith
from training.batch import DocumentArrays, DocumentBatch, collate, encode, split
from training.loop import cached_backward
from training.objectives import (
    Temperature,
    contrastive_task,
)


def gradients(
    model: Smith | Colde, temperature: Temperature, backward: Callable[[], Tensor]
) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    temperature.zero_grad()
    loss = backward()
    parameters = [*model.parameters(), *temperature.parameters()]
    return loss, [p.grad.clone() for p in parameters if p.grad is not None]


def task_of(documents: list[DocumentArrays]) -> tuple[Temperature, Callable[[Tensor], Tensor]]:
    temperature = Temperature("learned")
    batch = collate(documents)
    return temperature, contrastive_task(batch, torch.eye(4, 5).bool(), temperature).loss


def test_chunks_give_the_gradients_of_one_batch(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model, batch = tiny_model().train(), collate(documents)
    temperature, loss = task_of(documents)

    def at_once() -> Tensor:
        value = 0.5 * loss(encode(model, batch))
        value.backward()
        return value * 2

    def in_chunks() -> Tensor:
        return cached_backward(lambda c: encode(model, c), split(batch, 2), loss, scale=0.5)

    expected_loss, expected = gradients(model, temperature, at_once)
    found_loss, found = gradients(model, temperature, in_chunks)
    assert torch.allclose(found_loss, expected_loss)
    assert len(found) == len(expected) > 20
    for gradient, other in zip(found, expected, strict=True):
        assert torch.allclose(gradient, other, atol=1e-5, rtol=1e-4)
    assert max(gradient.abs().max().item() for gradient in expected) > 1e-2


def test_dropout_drops_the_same_the_second_time(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model(dropout=0.5).train()
    seen: dict[int, list[Tensor]] = {}

    def remember(chunk: DocumentBatch) -> Tensor:
        vectors = encode(model, chunk)
        seen.setdefault(id(chunk), []).append(vectors.detach())
        return vectors

    chunks = split(collate(documents), 2)
    temperature, loss = task_of(documents)
    torch.manual_seed(1)
    cached_backward(remember, chunks, loss)
    after = torch.get_rng_state()
    for first, second in seen.values():
        assert torch.allclose(first, second, atol=1e-6)
    assert not torch.allclose(encode(model, chunks[0]), seen[id(chunks[0])][0], atol=1e-2)
    torch.manual_seed(1)
    for chunk in chunks:
        encode(model, chunk)
    assert torch.equal(torch.get_rng_state(), after)  # the second pass drew nothing
    assert temperature.logarithm.grad is not None


def test_a_batch_of_one_chunk_is_encoded_once(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model, calls = tiny_model(), []

    def count(chunk: DocumentBatch) -> Tensor:
        calls.append(len(chunk))
        return encode(model, chunk)

    cached_backward(count, split(collate(documents), 9), task_of(documents)[1])
    assert calls == [9]
