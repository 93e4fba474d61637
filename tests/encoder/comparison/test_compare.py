"""Comparing two texts: what they share is found to the word, whatever they are.

A block vector is here the mean of random vectors of its words.
"""

import random
import time
import zlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.arrays import Float32, Int64
from encoder.comparison.alignment import ALIGNMENT_RULE
from encoder.comparison.compare import compare_texts
from encoder.comparison.matches import (
    Background,
    Box,
    find_exact_matches,
    locate_words,
    match_blocks,
    measure_background,
    merge_spans,
)
from encoder.comparison.matches import locate_words as words
from encoder.comparison.result import Comparison, Difference, Differences, PairScore, Span
from encoder.comparison.text import ComparableText, prepare_text

WIDTH = 64
BLOCK_WORDS = 40
SYLLABLES = ("ka", "lo", "mi", "ter", "sa", "ren", "du", "vo", "pel", "ni", "gar", "ost")


def prose(words: int, seed: int) -> str:
    """Sentences of words sampled from a vocabulary that depends on the seed."""
    draw = random.Random(seed)
    vocabulary = ["".join(draw.choices(SYLLABLES, k=3)) + str(seed % 10) for _ in range(400)]
    sentences = []
    while words > 0:
        size = min(words, draw.randint(9, 18))
        words -= size
        sentences.append(" ".join(draw.choices(vocabulary, k=size)).capitalize() + ".")
    return " ".join(sentences)


def word_vector(word: str) -> Float32:
    draw = np.random.default_rng(zlib.crc32(word.encode()))
    return draw.normal(size=WIDTH).astype(np.float32)


def read(text: str) -> ComparableText:
    words = locate_words(text)
    cuts = [*range(0, max(1, len(words)), BLOCK_WORDS), len(words)]
    offsets, vectors = [], []
    for first, last in pairwise(cuts):
        start = int(words.starts[first]) if len(words) else 0
        end = int(words.ends[last - 1]) if len(words) else len(text)
        offsets.append((start, end))
        spelled = text[start:end].casefold().split() or [text]
        vectors.append(np.sum([word_vector(word.strip(".,")) for word in spelled], axis=0))
    rows = np.stack(vectors)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vector = rows.sum(axis=0)
    return prepare_text(text, vector / np.linalg.norm(vector), rows, np.array(offsets))


PAIR = PairScore(
    score=0.42, scored_as="hybrid", semantic_score=0.2, vector_score=0.25, alignment_score=None,
    lexical_score=0.47, no_probability="few documents",
)  # fmt: skip


def compared(left: str, right: str, pair: PairScore = PAIR) -> Comparison:
    return compare_texts(read(left), read(right), pair)


def mirrored(found: Comparison) -> list[tuple[Span, Span, str]]:
    return sorted((passage.right, passage.left, passage.kind) for passage in found.passages)


def planted(share: float) -> tuple[str, str, str]:
    """Return a text, a text with a passage of it, and the passage: that share of 2,000 words."""
    left, host = prose(2000, 1), prose(2000, 2).split(" ")
    words = left.split(" ")
    passage = " ".join(words[700 : 700 + int(2000 * share)])
    return left, " ".join([*host[:900], passage, *host[900:]]), passage


def test_a_text_with_itself_is_identical_and_covered_whole() -> None:
    text = prose(900, 1)
    found = compared(text, text)
    assert found.relation == "identical"
    assert (found.left_coverage, found.right_coverage) == (1.0, 1.0)
    (passage,) = found.passages
    assert passage.left == passage.right == Span(0, len(text))
    assert passage.kind == "verbatim"
    assert np.diag(found.section_scores) == pytest.approx(1.0)


def test_white_space_does_not_matter_and_words_do() -> None:
    text = prose(300, 1)
    assert compared(text, f"  {text.replace(' ', chr(10))}\n").relation == "identical"
    assert compared(text, text.upper()).relation == "near-copy"
    assert compared(text, f"{text} {prose(30, 2)}").relation == "near-copy"


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2, 0.5])
def test_a_copied_passage_is_found_to_the_word(share: float) -> None:
    left, right, passage = planted(share)
    found = compared(left, right)
    (aligned,) = [passage for passage in found.passages if passage.kind == "verbatim"]
    assert left[slice(*aligned.left)].strip(".") == passage.strip(".")
    assert right[slice(*aligned.right)].strip(".") == passage.strip(".")
    assert found.left_coverage == pytest.approx(share, rel=0.1)
    assert found.relation == ("near-copy" if share >= ALIGNMENT_RULE.copied_share else "uncertain")


def test_passages_in_another_order_keep_their_places() -> None:
    first, second, host = prose(120, 1), prose(120, 3), prose(400, 2)
    found = compared(f"{first} {second}", f"{second} {host} {first}")
    shared = [passage for passage in found.passages if passage.kind == "verbatim"]
    assert [item.left for item in shared] == sorted(item.left for item in shared)
    assert shared[0].right > shared[1].right
    assert found.left_coverage == 1.0


def test_reworded_passages_are_paraphrases() -> None:
    left = prose(600, 1)
    words = left.split(" ")
    words[3::6] = [f"other{n}" for n in range(len(words[3::6]))]
    found = compared(left, " ".join(words))
    assert found.relation == "paraphrase"
    assert found.left_coverage > 0.8
    assert {passage.kind for passage in found.passages} == {"paraphrase"}
    host = f"{' '.join(words)} {prose(3_000, 2)}".replace(".", "")
    within = compared(left.replace(".", ""), host)  # what has no sentences is cut into pieces
    assert within.left_coverage > 0.8
    assert within.right_coverage < 600 / 3_600


def test_left_and_right_can_be_exchanged() -> None:
    left, right, _ = planted(0.2)
    there, back = compared(left, right), compared(right, left)
    assert mirrored(back) == sorted(
        (passage.left, passage.right, passage.kind) for passage in there.passages
    )
    assert (there.left_coverage, there.right_coverage) == (back.right_coverage, back.left_coverage)
    np.testing.assert_allclose(there.section_scores, back.section_scores.T, atol=1e-6)


def test_evidence_carries_the_figures() -> None:
    left, right, _ = planted(0.5)
    found = compared(left, right)
    [covers] = [text for text in found.evidence if "covers" in text]
    assert f"{100 * found.left_coverage:.0f} % of the left text" in covers
    assert f"{100 * found.right_coverage:.0f} % of the right text" in covers
    assert any("1000 words" in sentence for sentence in found.evidence)
    scored = "The score is 0.42 (words 0.47, meaning as a whole 0.25)"
    assert found.evidence[-1] == f"{scored}; there is no probability: few documents."
    known = compared(left, right, replace(PAIR, probability=0.3, no_probability=None))
    assert known.evidence[-1] == f"{scored}; the probability of a match is 0.30."
    assert any("No passage" in text for text in compared(left, prose(800, 2)).evidence)


def test_coverage_is_of_its_side_and_one_copied_side_is_enough() -> None:
    large = prose(20_000, 1)
    small = " ".join(large.split(" ")[9_000:9_050])
    for found, of_large, of_small in (
        (there := compared(large, small), there.left_coverage, there.right_coverage),
        (back := compared(small, large), back.right_coverage, back.left_coverage),
    ):
        assert of_small > 0.97
        assert of_large == pytest.approx(50 / 20_000, rel=0.2)
        assert found.relation == "near-copy"


@pytest.mark.parametrize(
    ("left", "right", "relation"),
    [
        *(("Ants dig.", "Rivers run.", "uncertain"), ("!!! ???", "!!! ???", "identical")),
        *(("!!! ???", "Ants dig.", "uncertain"), ("Ants.", "", "uncertain")),
    ],
)
def test_texts_of_one_sentence(left: str, right: str, relation: str) -> None:
    found = compared(left, right)
    expected = 1.0 if relation == "identical" else 0.0
    assert found.relation == relation
    assert (found.left_coverage, found.right_coverage) == (expected, expected)


@pytest.mark.parametrize(
    ("probability", "relevant", "relation"),
    [
        (0.9, True, "same topic"),
        (0.5, True, "same topic"),
        (0.5, False, "same topic"),  # never unrelated from this probability on
        (0.49, True, "uncertain"),
        (0.2, False, "unrelated"),
        (None, True, "uncertain"),
        (None, False, "unrelated"),
        (None, None, "uncertain"),
    ],
)
def test_without_a_shared_passage_chance_decides(
    probability: float | None, relevant: bool | None, relation: str
) -> None:
    pair = replace(PAIR, probability=probability, relevant=relevant)
    assert compared("Ants dig.", "Rivers run.", pair).relation == relation
    assert compared("Ants dig.", "Ants dig.", pair).relation == "identical"


def test_two_languages_share_their_names_and_are_no_copies() -> None:
    english = "The queen of the ants lives in the nest. Workers bring seeds home in summer. " * 20
    greek = "Η βασίλισσα των μυρμηγκιών ζει στη φωλιά. Οι εργάτριες φέρνουν σπόρους το καλοκαίρι. "
    found = compared(english, greek * 20)
    assert found.relation == "uncertain"
    assert found.left_coverage == found.right_coverage == 0.0
    japanese = "女王は巣に住む。働き蟻は夏に種を運ぶ。" * 5
    assert compared(japanese, f"{greek}{japanese}").left_coverage == 1.0


def test_a_part_that_was_not_encoded_is_compared_by_words() -> None:
    text = prose(400, 1)
    whole = read(text)
    beginning = whole.block_vectors[:2], whole.offsets[:2]
    short = prepare_text(text, whole.vector, *beginning)
    found = compare_texts(short, read(f"{prose(100, 2)} {text[-800:]}"), PAIR)
    assert found.left_coverage > 0.2
    assert np.isfinite(found.section_scores).all()


def test_blocks_and_offsets_must_fit() -> None:
    whole = read(prose(100, 1))
    with pytest.raises(ValueError, match="do not fit"):
        prepare_text(whole.text, whole.vector, whole.block_vectors, whole.offsets[:1])


SHINGLE = 3


def test_what_one_text_repeats_is_found_at_each_place() -> None:
    left, right = words("a b c d"), words("a b c d x a b c d")
    assert find_exact_matches(left, right, SHINGLE) == [(0, 4, 0, 4), (0, 4, 5, 9)]
    assert find_exact_matches(right, left, SHINGLE) == [(0, 4, 0, 4), (5, 9, 0, 4)]


def test_the_longest_of_several_places_is_taken() -> None:
    left, right = words("a b c d e f"), words("a b c x a b c d e f")
    assert (0, 6, 4, 10) in find_exact_matches(left, right, SHINGLE)


def test_a_match_may_begin_inside_the_one_before() -> None:
    left, right = words("a b c d e y b c d e"), words("a b c x b c d e")
    assert find_exact_matches(left, right, SHINGLE) == [(0, 3, 0, 3), (1, 5, 4, 8), (6, 10, 4, 8)]


TEXTS = st.lists(st.sampled_from("abcde"), max_size=40).map(" ".join)


@given(TEXTS, TEXTS)
def test_every_shared_word_is_matched_and_every_match_is_equal(left: str, right: str) -> None:
    ours, theirs = left.split(), right.split()
    found = find_exact_matches(words(left), words(right), SHINGLE)
    for match in found:
        assert match.shorter >= SHINGLE
        assert ours[slice(*match[:2])] == theirs[slice(*match[2:])]
    for text, other, side in ((ours, theirs, 0), (theirs, ours, 1)):
        rows = {tuple(other[n : n + SHINGLE]) for n in range(len(other) - SHINGLE + 1)}
        shared = {
            place + word
            for place in range(len(text) - SHINGLE + 1)
            if tuple(text[place : place + SHINGLE]) in rows
            for word in range(SHINGLE)
        }
        matched = {word for match in found for word in range(*match[2 * side : 2 * side + 2])}
        assert matched == shared


def test_hostile_text_takes_linear_time() -> None:
    for text in ("a " * 100_000, "a b " * 50_000, " ".join(str(n) for n in range(100_000))):
        started = time.process_time()
        find_exact_matches(words(text), words(text + "x " + text[: len(text) // 2]), 8)
        assert time.process_time() - started < 60.0


def test_boxes_are_joined_over_gaps_of_both_texts() -> None:
    first = Box(0, 10, 0, 10)
    assert merge_spans([first, Box(12, 15, 12, 14)], 2) == [Box(0, 15, 0, 14)]
    for apart in (Box(13, 15, 12, 14), Box(12, 15, 13, 14)):
        assert merge_spans([first, apart], 2) == [first, apart]
    inner = Box(2, 4, 2, 4)  # it ends before the first, which reaches on
    assert merge_spans([first, inner, Box(11, 12, 11, 12)], 2) == [Box(0, 12, 0, 12)]


NONE = Background(0.1, 0.2)


def cosines(size: int, *pairs: tuple[int, int]) -> Float32:
    table = np.full((size, size), 0.1, dtype=np.float32)
    for pair in pairs:
        table[pair] = 0.9
    return table


def numbers(size: int) -> tuple[Int64, Int64]:
    """Number the blocks of two texts that were encoded whole."""
    return np.arange(size), np.arange(size)


def runs(table: Float32) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    every = np.ones(table.shape, dtype=bool)
    return [(run.left, run.right) for run in match_blocks(table, 0.5, every, numbers(len(table)))]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(1, 2), (2, 3), (3, 4)], [((1, 4), (2, 5))]),
        ([(0, 0), (2, 2)], [((0, 3), (0, 3))]),  # a gap of one is bridged
        ([(0, 0), (3, 3)], [((0, 1), (0, 1)), ((3, 4), (3, 4))]),
        ([(0, 3), (1, 4), (3, 0), (4, 1)], [((0, 2), (3, 5)), ((3, 5), (0, 2))]),
    ],
)
def test_neighbours_on_a_diagonal_are_one_run(
    pairs: list[tuple[int, int]], expected: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    assert runs(cosines(7, *pairs)) == expected


def test_blocks_that_were_not_encoded_end_a_run() -> None:
    table = cosines(4, (0, 0), (1, 1), (2, 2), (3, 3))
    every = np.ones(table.shape, dtype=bool)
    left = np.array([0, 1, 4, 5])
    found = match_blocks(table, 0.5, every, (left, np.arange(4)))
    assert [(run.left, run.right) for run in found] == [((0, 2), (0, 2)), ((2, 4), (2, 4))]


def test_only_the_best_of_row_and_column_matches() -> None:
    table = cosines(3, (0, 0))
    table[1, 0] = 0.95
    assert runs(table) == [((1, 2), (0, 1))]


def test_the_score_is_the_mean_and_unusable_pairs_are_left_out() -> None:
    table = cosines(3, (0, 0), (1, 1))
    table[1, 1] = 0.7
    (run,) = match_blocks(table, 0.5, np.ones((3, 3), dtype=bool), numbers(3))
    assert run.score == pytest.approx(0.8)
    usable = np.ones((3, 3), dtype=bool)
    usable[0] = False
    (run,) = match_blocks(table, 0.5, usable, numbers(3))
    assert run.left == (1, 2)
    assert match_blocks(table, 0.95, usable, numbers(3)) == []


def test_the_background_is_that_of_blocks_that_do_not_match() -> None:
    draw = np.random.default_rng(1)
    common = draw.normal(size=64)
    vectors = (draw.normal(size=(40, 64)) + common).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = measure_background(vectors[:20], vectors[10:], NONE)  # ten blocks in both
    assert 0.4 < found.centre < 0.6
    assert found.spread < 0.15
    assert found.threshold(3.0, 0.2) > found.centre + 2 * found.spread
    assert found.threshold(0.0, 0.99) == 0.99
    assert measure_background(vectors[:4], vectors[:4], NONE) is NONE  # too short


def differing(left: str, right: str) -> Differences:
    found = compare_texts(read(left), read(right), PAIR, differences=True).differences
    assert found is not None
    return found


def worded(text: str, found: tuple[Difference, ...]) -> list[tuple[str, str]]:
    return [(d.kind, " ".join(text[slice(*span)] for span in d.words)) for d in found]


def test_a_changed_word_differs_on_both_sides() -> None:
    left = prose(800, 1)
    before, word, after = left[:2000].rpartition(" ")[0], "thirty", left[2000:].partition(" ")[2]
    ours, theirs = f"{before} {word} {after}", f"{before} sixty {after}"
    found = differing(ours, theirs)
    assert worded(ours, found.left) == [("changed", "thirty")]
    assert worded(theirs, found.right) == [("changed", "sixty")]


def test_what_is_added_is_missing_on_the_other_side() -> None:
    left, clause = prose(800, 1), prose(2 * BLOCK_WORDS, 2)
    right = f"{left} {clause}"
    found = differing(left, right)
    assert found.left == ()
    assert {kind for kind, _ in worded(right, found.right)} == {"missing"}
    assert " ".join(words for _, words in worded(right, found.right)) == clause.rstrip(".")


@pytest.mark.parametrize(("added", "kind"), [(30, "missing"), (10, "changed")])
def test_a_block_is_missing_where_most_of_its_words_are(added: int, kind: str) -> None:
    left = prose(20 * BLOCK_WORDS - added, 1)
    right = f"{left} {prose(added, 2)}"
    assert [found.kind for found in differing(left, right).right] == [kind]


@pytest.mark.parametrize(("left", "right"), [(prose(300, 3),) * 2, ("?!", "...")])
def test_nothing_differs_where_the_words_are_the_same(left: str, right: str) -> None:
    assert differing(left, right) == Differences((), ())


def test_words_that_were_not_read_differ_by_sentences() -> None:
    left = prose(200, 1)
    rest = prose(60, 2)
    whole = read(f"{left} {rest}")
    kept = whole.offsets[:, 1] <= len(left)
    unread = replace(whole, block_vectors=whole.block_vectors[kept], offsets=whole.offsets[kept])
    found = compare_texts(unread, read(left), PAIR, differences=True).differences
    assert found is not None
    assert {(d.kind, d.nearest, d.similarity) for d in found.left} == {("missing", None, None)}
    assert len(found.left) == rest.count(".")
