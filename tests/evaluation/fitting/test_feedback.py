"""Probabilities that are fitted to the verdicts of users."""

import random
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float64, Int64
from encoder.calibration import match_probabilities
from evaluation.fitting.feedback import (
    Candidate,
    SearchableQuery,
    fit_verdicts,
    run_shadow_test,
)
from evaluation.fitting.judged_queries import JudgedQuery, hold_out, not_learned
from index.directory.data_directory import open_data_directory
from index.engine.port import EncodedQuery
from index.progress import SilentProgress
from tests.index.search.plane import RULE, direction, put

QUERIES = 50


def verdicts(relevant: int, others: int, seed: int = 0) -> tuple[Float64, Int64, Int64]:
    """Pairs whose scores have a known probability: 1 / (1 + exp(-2 score)), half of each kind."""
    draw = np.random.default_rng(seed)
    scores = np.concatenate([draw.normal(1, 1, relevant), draw.normal(-1, 1, others)])
    labels = np.repeat([1, 0], [relevant, others])
    return scores, labels, draw.integers(QUERIES, size=len(labels))


@pytest.mark.parametrize("others", [1_000, 10_000])
def test_probabilities_do_not_depend_on_class_sizes(others: int) -> None:
    found = fit_verdicts(*verdicts(1_000, others))
    assert found.fitted is not None
    assert (found.relevant, found.not_relevant, found.queries) == (1_000, others, QUERIES)
    points = np.array([-1.0, 0.0, 1.0])
    expected = 1 / (1 + np.exp(-2 * points))
    assert match_probabilities(found.fitted.map, points) == pytest.approx(expected, abs=0.05)


def test_verdicts_that_say_too_little_give_none() -> None:
    for relevant, others in ((19, 500), (500, 19), (0, 0)):
        found = fit_verdicts(*verdicts(relevant, others))
        assert (found.fitted, found.refused) == (None, "it takes 20 of each")
    scores, labels, queries = verdicts(300, 300)
    found = fit_verdicts(np.random.default_rng(1).permutation(scores), labels, queries)
    assert found.fitted is None
    assert found.refused is not None
    found = fit_verdicts(scores, labels, np.where(labels == 1, 0, np.arange(600)))
    assert (found.fitted, found.refused) == (None, "nearly all verdicts of a kind are of one query")


def query(key: str, *answers: str) -> JudgedQuery:
    grades = dict.fromkeys(answers, 1)
    return JudgedQuery(key, "", "", key, grades, {name: name for name in answers})


def test_about_the_share_is_held_out_and_always_the_same() -> None:
    queries = [query(f"q{number}", f"a{number % 7}") for number in range(200)]
    held = hold_out(queries, 0.2)
    assert sum(held) == 40
    shuffled = random.Random(1).sample(queries, len(queries))
    again = {
        judged.key for judged, out in zip(shuffled, hold_out(shuffled, 0.2), strict=True) if out
    }
    assert again == {query.key for query, out in zip(queries, held, strict=True) if out}


def test_copies_and_mutual_answers_stay_together() -> None:
    queries = [query(f"q{n}", f"q{n + 1 if n % 3 else n}") for n in range(90)]
    queries += [query(f"q{n}", "elsewhere") for n in range(90)]  # of the same texts
    held = dict.fromkeys((query.key for query in queries), False)
    for judged, out in zip(queries, hold_out(queries, 0.5), strict=True):
        held[judged.key] |= out
    for judged, out in zip(queries, hold_out(queries, 0.5), strict=True):
        assert held[judged.key] == out
        for key in judged.answer_keys.values():
            assert held.get(key, out) == out


def test_one_group_is_not_divided() -> None:
    chain = [query(f"q{number}", f"q{number + 1}") for number in range(50)]
    assert len(set(hold_out(chain, 0.2))) == 1
    assert hold_out([], 0.5) == []


def test_what_belongs_to_a_training_query_is_not_new() -> None:
    queries = [query("q1", "a"), query("q2", "q1"), query("q3", "q2"), query("q4", "a")]
    assert not_learned(queries, {"q1"}) == [False, False, False, True]
    assert not_learned(queries, {"gone"}) == [True] * 4
    queries = [query("q1", "asked before"), query("q1", "a"), query("q2", "a")]
    assert not_learned(queries, {"asked before"}) == [False, False, True]


def test_what_no_user_has_seen_does_not_count_unless_all_is_known(tmp_path: Path) -> None:
    """Judged documents are ranked among themselves: another that is nearer costs nothing."""
    opened = open_data_directory(tmp_path / "data", fingerprint="a" * 64, dimension=2)
    with closing(opened) as data:
        put(data, {"unseen": ("egret", 1), "liked": ("heron", 10), "disliked": ("court", 80)})
        query = EncodedQuery("", direction(0))

        def ndcg(grades: dict[str, int], *, complete: bool) -> float:
            asked = [SearchableQuery(query, grades, complete)] * 2
            candidate = Candidate(data, RULE, asked, asked)
            return run_shadow_test(candidate, candidate, SilentProgress()).held_out.present

        assert ndcg({"liked": 1, "disliked": 0}, complete=False) == 1.0
        assert ndcg({"liked": 1, "disliked": 0}, complete=True) == pytest.approx(1 / np.log2(3))
        assert ndcg({"liked": 0, "disliked": 1}, complete=False) == pytest.approx(1 / np.log2(3))
