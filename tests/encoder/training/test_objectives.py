"""Tasks refuse what does not fit, and generators hang on their numbers alone."""

from collections.abc import Callable

import pytest
import torch

from encoder.training.batch import DocumentArrays, DocumentBatch, collate
from encoder.training.objectives import (
    Temperature,
    contrastive_task,
    pairs_task,
    step_generator,
    step_seed,
)


@pytest.fixture
def batch(documents: list[DocumentArrays]) -> DocumentBatch:
    return collate(documents)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: pairs_task(b, torch.ones(4), 6.0), "4 labels take twice as many"),
        (
            lambda b: contrastive_task(b, torch.eye(4).bool(), Temperature(0.1)),
            r"\(4, 4\) positives do not fit 9 documents",
        ),
        (
            lambda b: contrastive_task(b, torch.zeros(4, 5).bool(), Temperature(0.1)),
            "every query takes a positive",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    batch: DocumentBatch, make: Callable[[DocumentBatch], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(batch)


def test_generators_hang_on_their_numbers_and_are_far_apart() -> None:
    def draw(*numbers: int) -> int:
        return int(torch.randint(2**62, (), generator=step_generator(*numbers)))

    assert draw(1, 2) == draw(1, 2)
    seeds = {step_seed(seed, step) for seed in range(30) for step in range(300)}
    draws = {draw(seed, step, 1) for seed in range(30) for step in range(30)}
    assert len(seeds) == 9_000
    assert len(draws) == 900
    assert step_seed(1, 2) != step_seed(2, 1) != step_seed(1, 2, 0)


def test_a_temperature_is_a_number_or_learned_above_its_floor() -> None:
    given = Temperature(0.002)
    assert given().item() == pytest.approx(0.002)
    assert not given.logarithm.requires_grad
    learned = Temperature("learned")
    assert learned().item() == pytest.approx(0.05)
    with torch.no_grad():
        learned.logarithm.fill_(-20.0)
    assert learned().item() == pytest.approx(0.01)
