"""The passages that two texts share, and how much of each text they cover.

Three kinds of match are searched for, the most certain first, each in what the previous kinds left:
equal words (shingles), sentences that share their distinctive words, and sentence blocks with close
vectors. No text is encoded here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from encoder.arrays import Bool, Int64
from encoder.comparison.matches import (
    STEP,
    Background,
    BlockRun,
    Box,
    Words,
    find_exact_matches,
    match_blocks,
    match_sentences,
    measure_background,
    merge_spans,
    word_range,
    words_in,
)
from encoder.comparison.result import AlignedPassage, PassageKind, Span
from encoder.comparison.text import ComparableText, span_vectors

_OF_SHORT_TEXTS = Background(centre=0.173, spread=0.193)


@dataclass(frozen=True, slots=True)
class AlignmentThresholds:
    """Thresholds of matching passages and of the relation of two texts.

    Attributes:
        shingle: number of consecutive equal words that make an exact match.
        sentence_cosine: least cosine of the weighted words of two matching sentences.
        sentence_shared: least number of different words that they share.
        gap: words between two matches, on both sides, that one passage bridges.
        least_words: of a passage, on its shorter side.
        verbatim_share: words of a passage that are in exact matches, from which it is verbatim.
        deviations: how far above the background of the two texts blocks match.
        least_cosine: of two matching blocks, regardless of the background.
        paraphrase_cosine: of a run of blocks, from which it is a paraphrase, not just similar.
        background: of texts that are too short to measure their own.
        copied_share: of the larger coverage, from which texts are near copies or paraphrases.
        topic_probability: of a match, from which texts are of the same topic.
    """

    shingle: int = 10
    sentence_cosine: float = 0.45
    sentence_shared: int = 3
    gap: int = 30
    least_words: int = 10
    verbatim_share: float = 0.85
    deviations: float = 2.75
    least_cosine: float = 0.65
    paraphrase_cosine: float = 0.85
    background: Background = _OF_SHORT_TEXTS
    copied_share: float = 0.4
    topic_probability: float = 0.5


ALIGNMENT_RULE = AlignmentThresholds()


MAX_PASSAGES = 512  # the largest are returned; the coverage counts all
_ACCOUNTED_FOR = 0.5  # share of a block in passages of words, from which its vector is ignored
_PUNCTUATION = 16  # characters of it, at most, that a passage includes on each side
_OPENING = re.compile(r"\S+\Z")
_CLOSING = re.compile(r"\S+")


class Coverage(NamedTuple):
    """Share of the characters of one text, 0 to 1; white space and punctuation do not count.

    Attributes:
        all: in verbatim and paraphrased passages.
        verbatim: in verbatim passages.
    """

    all: float
    verbatim: float


@dataclass(frozen=True, slots=True)
class Alignment:
    """The passages of two texts, in the order of the left one, and their coverage of each."""

    passages: tuple[AlignedPassage, ...]
    left: Coverage
    right: Coverage


class _Passage(NamedTuple):
    box: Box
    kind: PassageKind


def align_texts(
    left: ComparableText, right: ComparableText, rule: AlignmentThresholds
) -> Alignment:
    """Find the matching passages, with boundaries at words."""
    if not len(left.words) or not len(right.words):
        return _without_words(left, right)
    if np.array_equal(left.words.codes, right.words.codes):
        found = [_Passage(Box(0, len(left.words), 0, len(right.words)), "verbatim")]
    else:
        found = _worded(left, right, rule)
        found += _by_vectors(left, right, found, rule)
    shown = sorted(found, key=lambda result: result.box.shorter)[-MAX_PASSAGES:]
    return Alignment(
        passages=_passages(left, right, sorted(shown)),
        left=_covered(left.words, [(result.box[:2], result.kind) for result in found]),
        right=_covered(right.words, [(result.box[2:], result.kind) for result in found]),
    )


def _without_words(left: ComparableText, right: ComparableText) -> Alignment:
    """Align two texts of which one has no words: they are equal or share nothing."""
    if left.text.split() != right.text.split():
        return Alignment((), Coverage(0.0, 0.0), Coverage(0.0, 0.0))
    whole = [_Passage(Box(0, 0, 0, 0), "verbatim")]
    return Alignment(_passages(left, right, whole), Coverage(1.0, 1.0), Coverage(1.0, 1.0))


def _worded(
    left: ComparableText, right: ComparableText, rule: AlignmentThresholds
) -> list[_Passage]:
    """Find the passages that share their words, or most of their distinctive ones."""
    exact = find_exact_matches(left.words, right.words, rule.shingle)
    ours = words_in(left.words, [box[:2] for box in exact])
    theirs = words_in(right.words, [box[2:] for box in exact])
    links = match_sentences(
        (_without(left.words, ours), left.sentences),
        (_without(right.words, theirs), right.sentences),
        least_cosine=rule.sentence_cosine,
        least_shared=rule.sentence_shared,
    )
    boxes = [*exact, *links]
    ours_before, theirs_before = _counted(ours), _counted(theirs)
    found = []
    for box in merge_spans(boxes, rule.gap):
        same = min(
            (ours_before[box.left_end] - ours_before[box.left_start])
            / (box.left_end - box.left_start),
            (theirs_before[box.right_end] - theirs_before[box.right_start])
            / (box.right_end - box.right_start),
        )
        if box.shorter >= rule.least_words:
            found.append(_Passage(box, "verbatim" if same >= rule.verbatim_share else "paraphrase"))
    return found


def _by_vectors(
    left: ComparableText,
    right: ComparableText,
    found: Sequence[_Passage],
    rule: AlignmentThresholds,
) -> list[_Passage]:
    """Find the passages with close block vectors, outside those found by words."""
    cosines = left.block_vectors @ right.block_vectors.T
    background = measure_background(left.block_vectors, right.block_vectors, rule.background)
    free = np.outer(
        _free_blocks(left, [result.box[:2] for result in found]),
        _free_blocks(right, [result.box[2:] for result in found]),
    )
    threshold = background.threshold(rule.deviations, rule.least_cosine)
    runs = match_blocks(cosines, threshold, free, (_block_places(left), _block_places(right)))
    passages = [(_run_box(left, right, run), run.score) for run in runs]
    return [
        _Passage(box, "paraphrase" if score >= rule.paraphrase_cosine else "similar")
        for box, score in passages
        if box.shorter > 0
    ]


def _block_places(read: ComparableText) -> Int64:
    """Number the blocks of a text, Int64[S], with jumps over those that were not encoded.

    Blocks with text between them, which was not encoded, are too far apart for one run.
    """
    offsets = read.offsets.tolist()
    apart = [
        STEP if read.text[end:start].strip() else 0 for (_, end), (start, _) in pairwise(offsets)
    ]
    return np.arange(len(offsets)) + np.cumsum([0, *apart], dtype=np.int64)


def _run_box(left: ComparableText, right: ComparableText, run: BlockRun) -> Box:
    ours = _words_of_blocks(left, *run.left)
    theirs = _words_of_blocks(right, *run.right)
    return Box(*ours, *theirs)


def _words_of_blocks(read: ComparableText, first: int, last: int) -> tuple[int, int]:
    return word_range(read.words, int(read.offsets[first, 0]), int(read.offsets[last - 1, 1]))


def _free_blocks(read: ComparableText, ranges: Sequence[tuple[int, ...]]) -> Bool:
    """Return Bool[S], whether most words of each block are outside of passages."""
    before = _counted(words_in(read.words, ranges))
    first = np.searchsorted(read.words.starts, read.offsets[:, 0], side="left")
    last = np.maximum(first, np.searchsorted(read.words.ends, read.offsets[:, 1], side="right"))
    free: Bool = before[last] - before[first] < _ACCOUNTED_FOR * np.maximum(last - first, 1)
    return free


def _passages(
    left: ComparableText, right: ComparableText, found: Sequence[_Passage]
) -> tuple[AlignedPassage, ...]:
    ours = [_span(left, *result.box[:2]) for result in found]
    theirs = [_span(right, *result.box[2:]) for result in found]
    cosines = (span_vectors(left, ours) * span_vectors(right, theirs)).sum(axis=1)
    scores = np.clip(cosines, -1.0, 1.0).tolist()
    return tuple(
        AlignedPassage(our, other, score, passage.kind)
        for our, other, score, passage in zip(ours, theirs, scores, found, strict=True)
    )


def _span(read: ComparableText, first: int, last: int) -> Span:
    """Return the characters of some words, with adjacent punctuation."""
    words = read.words
    if first == 0 and last == len(words):
        return Span(0, len(read.text))
    before = int(words.ends[first - 1]) if first else 0
    after = int(words.starts[last]) if last < len(words) else len(read.text)
    start, end = int(words.starts[first]), int(words.ends[last - 1])
    leading = _OPENING.search(read.text, max(before, start - _PUNCTUATION), start)
    trailing = _CLOSING.match(read.text, end, min(after, end + _PUNCTUATION))
    return Span(leading.start() if leading else start, trailing.end() if trailing else end)


def _covered(words: Words, passages: Sequence[tuple[tuple[int, ...], PassageKind]]) -> Coverage:
    sizes = words.ends - words.starts
    total = max(1, int(sizes.sum()))
    verbatim = words_in(words, [place for place, kind in passages if kind == "verbatim"])
    rest = words_in(words, [place for place, kind in passages if kind == "paraphrase"])
    return Coverage(
        all=float(sizes[verbatim | rest].sum()) / total,
        verbatim=float(sizes[verbatim].sum()) / total,
    )


def _counted(mask: Bool) -> Int64:
    """Return Int64[N + 1], how many are true before each position."""
    return np.concatenate([[0], np.cumsum(mask)])


def _without(words: Words, mask: Bool) -> Words:
    """Return words with code 0 where the mask is true."""
    return replace(words, codes=np.where(mask, 0, words.codes))
