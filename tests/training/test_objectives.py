"""Generators of steps, and temperatures."""

import pytest
import torch

from training import objectives


def test_generators_hang_on_their_numbers_and_are_far_apart() -> None:
    def sample(*numbers: int) -> int:
        return int(torch.randint(2**62, (), generator=objectives.step_generator(*numbers)))

    assert sample(1, 2) == sample(1, 2)
    seeds = {objectives.step_seed(seed, step) for seed in range(30) for step in range(300)}
    samples = {sample(seed, step, 1) for seed in range(30) for step in range(30)}
    assert len(seeds) == 9_000
    assert len(samples) == 900
    assert objectives.step_seed(1, 2) != objectives.step_seed(2, 1) != objectives.step_seed(1, 2, 0)


def test_a_temperature_is_a_number_or_learned_above_its_floor() -> None:
    given = objectives.Temperature(0.002)
    assert given().item() == pytest.approx(0.002)
    assert not given.logarithm.requires_grad
    learned = objectives.Temperature("learned")
    assert learned().item() == pytest.approx(0.05)
    with torch.no_grad():
        learned.logarithm.fill_(-20.0)
    assert learned().item() == pytest.approx(0.01)
