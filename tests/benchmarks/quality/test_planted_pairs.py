"""Planted pairs: exactly the labelled passages are shared."""

import random
from collections import Counter

import pytest

from benchmarks.quality.explanation_pairs import RELATIONS, PairOutcome, precision_recall
from benchmarks.quality.explanations import measure, table
from benchmarks.quality.paraphrases import edit_lightly, paraphrase
from benchmarks.quality.planted_pairs import PlantedPair, make_pairs
from index.document import Document


@pytest.fixture(scope="module")
def pairs() -> list[PlantedPair]:
    documents = []
    for number in range(6):
        chance = random.Random(number)
        words = [f"w{number}x{chance.randrange(300)}" for _ in range(1000)]
        lines = (" ".join(words[n : n + 10]).capitalize() + "." for n in range(0, 1000, 10))
        documents.append(Document(f"d{number}", " ".join(lines)))
    return make_pairs(documents, 96, seed=3)


def shared(text: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [text[start:end] for start, end in spans]


def test_every_share_strength_and_order_is_there(pairs: list[PlantedPair]) -> None:
    planted = {(one.kind, one.share, one.shuffled) for one in pairs if 0 < one.share < 1}
    assert len(planted) == 32
    assert {one.relation for one in pairs} == set(RELATIONS)


def test_copied_passages_are_in_both_texts_and_of_planned_size(pairs: list[PlantedPair]) -> None:
    copied = [one for one in pairs if one.kind == "copied"]
    assert copied
    for one in copied:
        left, right = (shared(one.left, one.left_spans), shared(one.right, one.right_spans))
        assert sorted(left) == sorted(right)
        share = sum(map(len, right)) / len(one.right)
        assert share == pytest.approx(one.share, abs=0.03)


def test_the_rest_of_a_planted_pair_is_not_shared(pairs: list[PlantedPair]) -> None:
    for one in pairs:
        if one.relation == "unrelated" and one.share == 0:
            assert not set(one.left.split()) & set(one.right.split())


def test_paraphrases_change_more_with_their_strength() -> None:
    sentences = [
        "If the function does not return a list, the file is used often and very many errors "
        f"are found in {n} places, because the value must be given."
        for n in range(3, 15)
    ]
    kept = []
    for strength in ("light", "medium", "strong"):
        found = paraphrase(sentences, strength, random.Random(1))
        assert len(found) == len(sentences)
        before = Counter(" ".join(sentences).split())
        kept.append((before & Counter(" ".join(found).split())).total() / before.total())
    assert 0.9 > kept[0] >= kept[1] >= kept[2] > 0.1
    assert edit_lightly(" ".join(sentences), random.Random(1)) != " ".join(sentences)


def test_figures_of_pair_outcomes(pairs: list[PlantedPair]) -> None:
    planted = next(one for one in pairs if one.kind == "copied" and one.share == 0.5)
    halves = next(one for one in pairs if one.kind == "halves")
    outcomes = [
        PairOutcome(planted, 80, 100, 160, (0.1, 0.3), "near-copy"),
        PairOutcome(halves, 0, 50, 0, (0.0, 0.0), "unrelated"),
    ]
    assert precision_recall(outcomes[:1]) == (0.8, 0.5)
    results = measure(outcomes)
    assert (results["all"]["precision"], results["all"]["coverage_error"]) == (0.8, 0.2)
    assert results["confusion"][1][1] == results["confusion"][3][4] == 1
    record = {
        "settings": {"timed_blocks": 100},
        "results": {"corpora": {"c": results}, "time": {"read_ms": 1.0, "compare_ms": 2.0}},
    }
    assert "| copied, 50 %" in table(record)
    assert "2 ms to compare" in table(record)
