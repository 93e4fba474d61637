"""The experiment on how far the loss of segment reordering reaches."""

import math
from collections import Counter

import pytest
import torch

from benchmarks.pretraining.order import FIRST, Reach, batch, least_loss, measure, table


@pytest.mark.parametrize("reach", [Reach(1, 4, 8), Reach(2, 4, 8), Reach(4, 4, 8)])
def test_the_least_loss_is_the_entropy_of_what_is_seen(reach: Reach) -> None:
    texts, classes = batch(reach, 4_000, torch.Generator().manual_seed(0))
    words = texts.input_ids[:, 1:-1].reshape(len(classes), -1)
    places = (words == FIRST).int().argmax(1)
    for in_sight in (reach.in_sight, reach.words):
        seen = torch.where(places >= reach.words - in_sight, places, 0).tolist()
        both = Counter(zip(seen, classes.tolist(), strict=True))
        alone = Counter(seen)
        entropy = sum(
            -count / len(seen) * math.log(count / alone[place])
            for (place, _), count in both.items()
        )
        assert least_loss(reach.words, in_sight) == pytest.approx(entropy, abs=0.04)


def test_a_record_is_a_table() -> None:
    results = measure([Reach(2, 4, 8)], 8)
    assert math.isfinite(results[0]["loss"])
    row = table({"results": results}).splitlines()[-1]
    assert [cell.strip() for cell in row.split("|")[1:5]] == ["2", "8", "4", "12"]
