"""Judged queries are divided so that what belongs together stays together."""

import random

from evaluation.fitting.judged_queries import JudgedQuery, hold_out, not_learned


def query(key: str, *answers: str) -> JudgedQuery:
    grades = dict.fromkeys(answers, 1)
    return JudgedQuery(key, "", "", key, grades, {name: name for name in answers})


def test_about_the_share_is_held_out_and_always_the_same() -> None:
    queries = [query(f"q{number}", f"a{number % 7}") for number in range(200)]
    held = hold_out(queries, 0.2)
    assert sum(held) == 40
    shuffled = random.Random(1).sample(queries, len(queries))
    again = {one.key for one, out in zip(shuffled, hold_out(shuffled, 0.2), strict=True) if out}
    assert again == {one.key for one, out in zip(queries, held, strict=True) if out}


def test_copies_and_queries_that_answer_one_another_stay_together() -> None:
    queries = [query(f"q{n}", f"q{n + 1 if n % 3 else n}") for n in range(90)]
    queries += [query(f"q{n}", "elsewhere") for n in range(90)]  # of the same texts
    held = dict.fromkeys((one.key for one in queries), False)
    for one, out in zip(queries, hold_out(queries, 0.5), strict=True):
        held[one.key] |= out
    for one, out in zip(queries, hold_out(queries, 0.5), strict=True):
        assert held[one.key] == out
        for key in one.answer_keys.values():
            assert held.get(key, out) == out


def test_one_group_is_not_divided() -> None:
    chain = [query(f"q{number}", f"q{number + 1}") for number in range(50)]
    assert len(set(hold_out(chain, 0.2))) == 1
    assert hold_out([], 0.5) == []


def test_what_belongs_to_a_query_that_was_learned_from_is_not_new() -> None:
    queries = [query("q1", "a"), query("q2", "q1"), query("q3", "q2"), query("q4", "a")]
    assert not_learned(queries, {"q1"}) == [False, False, False, True]
    assert not_learned(queries, {"gone"}) == [True] * 4
    queries = [query("q1", "asked before"), query("q1", "a"), query("q2", "a")]
    assert not_learned(queries, {"asked before"}) == [False, False, True]
