import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.vectors.lists import Drift, drift_reasons, measure_drift


def drift(**changed: float) -> Drift:
    fields = {"imbalance": 1.2, "empty": 0.0, "added": 0.2, "removed": 0.0}
    return Drift(**{**fields, **changed}, nlist=128, outgrown=False)


def test_the_imbalance_is_the_mean_cost_of_a_visited_list() -> None:
    sizes = np.array([10, 10, 10, 10])
    even = measure_drift(sizes, 40, added=0, removed=0)
    assert (even.imbalance, even.empty, even.changed) == (1.0, 0.0, 0.0)
    # A vector lies with probability n / 40 in a list of n, so a query scans 34 where it would 10.
    uneven = measure_drift(np.array([36, 4, 0, 0]), 40, added=30, removed=10)
    assert uneven.imbalance == pytest.approx((36 * 36 + 4 * 4) / 40 / 10)
    assert (uneven.empty, uneven.added, uneven.removed) == (0.5, 0.75, 0.25)


@given(sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_the_imbalance_is_between_one_and_the_number_of_lists(sizes: list[int]) -> None:
    found = measure_drift(np.array(sizes), 0, added=0, removed=0)
    assert 1 - 1e-9 <= found.imbalance <= len(sizes) + 1e-9
    assert 0 <= found.empty < 1


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({}, ()),
        ({"imbalance": 3.5}, ("imbalance 3.50",)),
        ({"empty": 0.5}, ("empty lists 0.50",)),
        ({"added": 1.1}, ("growth 1.10",)),
        ({"removed": 0.6}, ("deletes 0.60",)),
        ({"imbalance": 4.0, "removed": 0.6}, ("imbalance 4.00", "deletes 0.60")),
        # Uneven as soon as they were trained: to train the same vectors again changes nothing.
        ({"imbalance": 3.5, "added": 0.05}, ()),
    ],
)
def test_reasons_to_train_again(changed: dict[str, float], reasons: tuple[str, ...]) -> None:
    assert drift_reasons(drift(**changed)) == reasons


def test_a_retraining_needs_changes_since_the_last_attempt() -> None:
    assert drift_reasons(drift(added=1.1), attempted_at=1.05) == ()
    assert drift_reasons(drift(added=1.2), attempted_at=1.05) == ("growth 1.20",)


def test_one_list_is_only_ever_outgrown() -> None:
    few = measure_drift(np.array([100]), 10, added=90, removed=0)
    assert drift_reasons(few) == ()
    many = measure_drift(np.array([5_000]), 4_000, added=1_000, removed=0)
    assert drift_reasons(many) == ("too few or too many lists",)
    assert drift_reasons(many, attempted_at=many.changed) == ()
    # A collection that goes up and down around the limit is not trained every minute.
    back = measure_drift(np.array([5_000]), 4_999, added=1, removed=0)
    assert drift_reasons(back) == ()


def test_an_emptied_index_has_too_many_lists() -> None:
    emptied = measure_drift(np.zeros(128, np.int64), 5_000, added=0, removed=5_000)
    assert drift_reasons(emptied) == ("too few or too many lists", "deletes 1.00")
