"""What masking hides, how much of it, and what it never touches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


VOCABULARY = objectives.Vocabulary(size=1_000, mask_token=103, special_tokens=(0, 101, 102, 103))


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_words_are_hidden_in_berts_shares() -> None:
    words = torch.randint(200, 1_000, (400, 500), generator=generator())
    hidden, places = objectives.mask_words(words, VOCABULARY, 0.15, generator(2))
    chosen = int(places.sum())
    assert chosen / words.numel() == pytest.approx(0.15, abs=0.005)
    as_mask = int((hidden[places] == 103).sum()) / chosen
    as_it_was = int((hidden[places] == words[places]).sum()) / chosen
    assert as_mask == pytest.approx(0.8, abs=0.01)
    assert as_it_was == pytest.approx(0.1, abs=0.01)
    assert bool((hidden[~places] == words[~places]).all())


def test_random_words_come_from_the_whole_vocabulary() -> None:
    words = torch.full((400, 500), 500)
    hidden, places = objectives.mask_words(words, VOCABULARY, 0.15, generator())
    random = hidden[places & (hidden != 103) & (hidden != 500)]
    assert len(random.unique()) > 900


def test_special_tokens_are_never_masked() -> None:
    ids = torch.tensor([[101, 103, 102, 0]]).repeat(500, 1)
    hidden, places = objectives.mask_words(ids, VOCABULARY, 0.9, generator())
    assert not places.any()
    assert torch.equal(hidden, ids)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(1, 6), st.integers(0, 99))
def test_m_blocks_are_masked_and_one_is_left(blocks: list[int], count: int, seed: int) -> None:
    mask = (torch.arange(12) < torch.tensor(blocks)[:, None]).float()
    masked = objectives.mask_blocks(mask, count, generator(seed))
    assert not (masked & (mask == 0)).any()  # never padding
    assert masked.sum(1).tolist() == [min(count, number - 1) for number in blocks]


def test_every_block_is_masked_equally_often() -> None:
    masked = objectives.mask_blocks(torch.ones(20_000, 5), 2, generator())
    assert masked.float().mean(0).tolist() == pytest.approx([0.4] * 5, abs=0.02)


def test_chosen_blocks_are_different_and_in_order() -> None:
    assert objectives.choose_blocks(3, 8, generator()).tolist() == [0, 1, 2]
    places = objectives.choose_blocks(50, 8, generator()).tolist()
    assert places == sorted(set(places))
    assert len(places) == 8
    assert places != objectives.choose_blocks(50, 8, generator(2)).tolist()
