"""Comparing two texts: score, relation, passages, aligned blocks, coverage, sections, differences.

No text is encoded here.
"""

from collections.abc import Sequence

import numpy as np

from encoder.alignment.scoring import find_contributions
from encoder.alignment.space import choose_blocks
from encoder.arrays import Bool, Float32, Int64
from encoder.comparison.alignment import (
    ALIGNMENT_RULE,
    Alignment,
    AlignmentThresholds,
    Coverage,
    align_texts,
)
from encoder.comparison.matches import Words, find_exact_matches, word_range, words_in
from encoder.comparison.result import (
    AlignedBlockPair,
    AlignedPassage,
    BlockAlignment,
    Comparison,
    Difference,
    DifferenceKind,
    Differences,
    PairScore,
    Relation,
    SectionScoresFrom,
    Span,
)
from encoder.comparison.sections import SectionReader, attended_blocks
from encoder.comparison.text import ComparableText, span_vectors

_SHINGLE = 4  # consecutive equal words; of differences, shorter ones are equal by chance
_MISSING = 0.5  # share of the words of a block, from which all of it is missing
_NAMES = {"verbatim": "word for word", "paraphrase": "in other words", "similar": "similar"}


def classify_relation(
    left: ComparableText,
    right: ComparableText,
    pair: PairScore,
    alignment: Alignment,
    rule: AlignmentThresholds,
) -> Relation:
    """Classify the relation of two texts.

    Identical: equal except for white space. Near-copy and paraphrase: passages cover at least
    `rule.copied_share` of one of them, more than half of that word for word, or less. Same topic:
    the probability of a match reaches `rule.topic_probability`. Unrelated: the score does not rise
    above the level of chance. Uncertain: the rest, and where chance was not measured.
    """
    if left.text == right.text or left.text.split() == right.text.split():
        return "identical"
    more = max(alignment.left, alignment.right)
    if more.all >= rule.copied_share:
        return "near-copy" if more.verbatim > more.all / 2 else "paraphrase"
    if pair.probability is not None and pair.probability >= rule.topic_probability:
        return "same topic"
    return "unrelated" if pair.relevant is False else "uncertain"


def gather_evidence(
    left: ComparableText, right: ComparableText, pair: PairScore, alignment: Alignment
) -> tuple[str, ...]:
    """Return the evidence for the relation, a sentence a figure; the last is that of the scores."""
    scored = _scored(pair)
    if left.text.split() == right.text.split():
        return ("The texts are the same but for white space.", scored)
    passages = alignment.passages
    shared = [passage for passage in passages if passage.kind != "similar"]
    found = ["No passage of one text was found in the other."]
    if shared:
        found = [_coverage(alignment.left, alignment.right, len(shared)), _longest(left, shared)]
    similar = len(passages) - len(shared)
    if similar:
        best = max(passage.score for passage in passages if passage.kind == "similar")
        runs = "passage is" if similar == 1 else "passages are"
        found.append(
            f"{similar} {runs} similar in what is said but not in words, with a cosine of up to "
            f"{best:.2f}."
        )
    return (*found, scored)


def _scored(pair: PairScore) -> str:
    parts = {
        "words": pair.lexical_score,
        "meaning part by part": pair.alignment_score,
        "meaning as a whole": pair.vector_score,
    }
    named = ", ".join(f"{name} {part:.2f}" for name, part in parts.items() if part is not None)
    stated = f"there is no probability: {pair.no_probability}"
    if pair.probability is not None:
        stated = f"the probability of a match is {pair.probability:.2f}"
    return f"The score is {pair.score:.2f} ({named}); {stated}."


def _coverage(left: Coverage, right: Coverage, passages: int) -> str:
    count = "1 passage covers" if passages == 1 else f"{passages} passages cover"
    return (
        f"{count} {percent(left.all)} of the left text ({percent(left.verbatim)} word for "
        f"word) and {percent(right.all)} of the right text ({percent(right.verbatim)})."
    )


def _longest(left: ComparableText, passages: list[AlignedPassage]) -> str:
    ranges = [word_range(left.words, *passage.left) for passage in passages]
    sizes = [last - first for first, last in ranges]
    longest = passages[sizes.index(max(sizes))]
    return f"The longest passage has {max(sizes)} words and is shared {_NAMES[longest.kind]}."


def percent(share: float) -> str:
    """Return a share as a percentage; "100 %" and "0 %" are exact."""
    if 0 < share < 0.01:
        return "<1 %"
    return ">99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def compare_texts(
    left: ComparableText,
    right: ComparableText,
    pair: PairScore,
    *,
    reader: SectionReader | None = None,
    differences: bool = False,
    rule: AlignmentThresholds = ALIGNMENT_RULE,
) -> Comparison:
    """Compare two texts from their vectors and words; no text is encoded.

    Args:
        left: one text.
        right: the other, of the same checkpoint.
        pair: their scores.
        reader: of sections, which both were prepared with; None where the model has none.
        differences: whether to find what each text has that the other lacks.
        rule: the thresholds.
    """
    alignment = align_texts(left, right, rule)
    scores, scores_from = score_sections(left, right)
    attended = None
    if reader is not None:
        ours, theirs = ((side.block_vectors, side.offsets) for side in (left, right))
        attended = attended_blocks(reader, ours, theirs)
    return Comparison(
        pair=pair,
        relation=classify_relation(left, right, pair, alignment, rule),
        evidence=gather_evidence(left, right, pair, alignment),
        left_sections=left.sections,
        right_sections=right.sections,
        section_scores=scores,
        section_scores_from=scores_from,
        passages=alignment.passages,
        block_alignment=align_blocks(left, right),
        attended_blocks=attended,
        left_coverage=alignment.left.all,
        right_coverage=alignment.right.all,
        differences=find_differences(left, right, alignment.passages) if differences else None,
    )


def score_sections(
    left: ComparableText, right: ComparableText
) -> tuple[Float32, SectionScoresFrom]:
    """Return the cosine [L, R] of each two sections, and of which vectors it is.

    They are the section vectors of the model (CoLDE, section 3.2) if both texts have them, which
    are of unit norm: z_i . z_j. Otherwise they are means of block vectors.
    """
    if left.section_vectors is not None and right.section_vectors is not None:
        products = left.section_vectors @ right.section_vectors.T
        return np.clip(products, -1.0, 1.0), "section vectors"
    ours = span_vectors(left, [section.span for section in left.sections])
    theirs = span_vectors(right, [section.span for section in right.sections])
    return np.clip(ours @ theirs.T, -1.0, 1.0), "block vectors"


def align_blocks(left: ComparableText, right: ComparableText) -> BlockAlignment | None:
    """Align the sentence blocks of two texts as search does; None if one is in no space."""
    if left.aligned is None or right.aligned is None:
        return None
    found = find_contributions(left.aligned, right.aligned)
    ours, theirs = _spans(left, found.pairs[:, 0]), _spans(right, found.pairs[:, 1])
    amounts = found.similarities.tolist(), found.shares.tolist()
    pairs = (AlignedBlockPair(*item) for item in zip(ours, theirs, *amounts, strict=True))
    return BlockAlignment(found.score, tuple(pairs))


def _spans(read: ComparableText, aligned: Int64) -> list[Span]:
    """Return the characters of blocks, given by their places among those that are aligned."""
    blocks = choose_blocks(len(read.offsets))[aligned]
    return [Span(*place) for place in read.offsets[blocks].tolist()]


def find_differences(
    left: ComparableText, right: ComparableText, passages: Sequence[AlignedPassage]
) -> Differences:
    """Find the blocks of each of two texts that the other lacks, or has in other words.

    Args:
        left: one text.
        right: the other, of the same checkpoint.
        passages: that the two share.
    """
    matches = find_exact_matches(left.words, right.words, _SHINGLE)
    ours, theirs = [box[:2] for box in matches], [box[2:] for box in matches]
    shared = [passage for passage in passages if passage.kind != "similar"]
    return Differences(
        _lacking(left, right, ours, [passage.left for passage in shared]),
        _lacking(right, left, theirs, [passage.right for passage in shared]),
    )


def _lacking(
    read: ComparableText,
    other: ComparableText,
    equal: Sequence[tuple[int, ...]],
    passages: Sequence[Span],
) -> tuple[Difference, ...]:
    """Return the blocks of a text that are not in the other, given the words that are."""
    same = words_in(read.words, equal)
    covered = same | words_in(
        read.words, [word_range(read.words, *passage) for passage in passages]
    )
    cosines = read.block_vectors @ other.block_vectors.T
    found = []
    for span, block in _parts(read):
        first, last = word_range(read.words, *span)
        if same[first:last].all():
            continue
        missing = float(np.mean(~covered[first:last])) > _MISSING
        nearest, similarity = None, None
        if block is not None:
            place = int(cosines[block].argmax())
            nearest = Span(*other.offsets[place].tolist())
            similarity = float(np.clip(cosines[block, place], -1.0, 1.0))
        words = _runs(read.words, same, first, last)
        kind: DifferenceKind = "missing" if missing else "changed"
        found.append(Difference(span, kind, words, nearest, similarity))
    return tuple(found)


def _parts(read: ComparableText) -> list[tuple[Span, int | None]]:
    """Return the blocks of a text with their numbers, and the sentences that are in no block."""
    parts: list[tuple[Span, int | None]] = []
    blocks = [word_range(read.words, *offsets) for offsets in read.offsets.tolist()]
    parts += [(Span(*place), number) for number, place in enumerate(read.offsets.tolist())]
    inside = words_in(read.words, blocks)
    starts, ends = read.words.starts, read.words.ends
    for first, last in zip(
        read.sentences.first.tolist(), read.sentences.last.tolist(), strict=True
    ):
        if first < last and not inside[first:last].any():
            parts.append((Span(int(starts[first]), int(ends[last - 1])), None))
    return sorted(parts, key=lambda part: part[0])


def _runs(words: Words, same: Bool, first: int, last: int) -> tuple[Span, ...]:
    """Return the characters of the runs of words in `first:last` that are not the same."""
    flags = np.concatenate([[True], same[first:last], [True]]).astype(np.int8)
    changes = np.flatnonzero(np.diff(flags)).tolist()
    return tuple(
        Span(int(words.starts[first + begin]), int(words.ends[first + end - 1]))
        for begin, end in zip(changes[::2], changes[1::2], strict=True)
    )
