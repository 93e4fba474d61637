"""Measures of explanations: aligned characters, coverage and relations of pairs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.quality.planted_pairs import PlantedPair
from encoder.arrays import Bool
from encoder.comparison.alignment import AlignmentThresholds
from encoder.comparison.compare import compare_texts
from encoder.comparison.result import Comparison, Relation, Span
from encoder.comparison.text import ComparableText, prepare_text
from encoder.comparison.words import Words, word_range
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer

RELATIONS: tuple[Relation, ...] = (
    "identical", "near-copy", "paraphrase", "same topic", "unrelated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadPair:
    """A pair with both texts read and encoded."""

    pair: PlantedPair
    left: ComparableText
    right: ComparableText


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """Correctness of one explanation; counts are characters of words on both sides.

    Attributes:
        pair: what was compared.
        hits: aligned characters that are shared.
        aligned: characters aligned.
        shared: characters shared.
        coverage_errors: of the left and of the right text, absolute.
        relation: predicted relation.
    """

    pair: PlantedPair
    hits: int
    aligned: int
    shared: int
    coverage_errors: tuple[float, float]
    relation: Relation


def read_pairs(
    pairs: Sequence[PlantedPair], tokenizer: BlockTokenizer, encoder: OnnxEncoder
) -> list[ReadPair]:
    """Encode the texts of pairs, each text once."""
    known: dict[str, ComparableText] = {}
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.left, pair.right)))
    for text in texts:
        blocks = tokenizer(text)
        encoded = encoder.encode([blocks])
        offsets = np.array(blocks.offsets, dtype=np.int64)
        known[text] = prepare_text(
            text, encoded.document_vectors[0], encoded.block_vectors[0], offsets
        )
    return [ReadPair(pair, known[pair.left], known[pair.right]) for pair in pairs]


def compare_pairs(pairs: Iterable[ReadPair], rule: AlignmentThresholds) -> list[PairOutcome]:
    """Compare each pair and measure how correct the explanation is."""
    return [_outcome(one, compare_texts(one.left, one.right, rule=rule)) for one in pairs]


def where_truth_is_known(outcomes: Iterable[PairOutcome]) -> list[PairOutcome]:
    """Leave out halves of one document: they repeat text that was not planted."""
    return [one for one in outcomes if one.pair.kind != "halves"]


def precision_recall(outcomes: Sequence[PairOutcome]) -> tuple[float, float]:
    """Return precision and recall of the aligned characters of some pairs, all taken together."""
    hits = sum(one.hits for one in outcomes)
    aligned = sum(one.aligned for one in outcomes)
    shared = sum(one.shared for one in outcomes)
    return hits / aligned if aligned else 1.0, hits / shared if shared else 1.0


def _outcome(one: ReadPair, found: Comparison) -> PairOutcome:
    pair = one.pair
    counted = [passage for passage in found.passages if passage.kind != "similar"]
    sides = (
        _counts(one.left.words, [passage.left for passage in counted], pair.left_spans),
        _counts(one.right.words, [passage.right for passage in counted], pair.right_spans),
    )
    hits, aligned, shared, _ = (left + right for left, right in zip(*sides, strict=True))
    return PairOutcome(
        pair=pair,
        hits=hits,
        aligned=aligned,
        shared=shared,
        coverage_errors=(
            abs(found.left_coverage - sides[0][2] / sides[0][3]),
            abs(found.right_coverage - sides[1][2] / sides[1][3]),
        ),
        relation=found.relation,
    )


def _counts(words: Words, aligned: Sequence[Span], shared: Sequence[Span]) -> tuple[int, ...]:
    """Return the characters of words that are both, aligned, shared, and all of them."""
    sizes = words.ends - words.starts
    ours, theirs = _mask(words, aligned), _mask(words, shared)
    masks = (ours & theirs, ours, theirs, np.ones(len(words), dtype=bool))
    return tuple(int(sizes[mask].sum()) for mask in masks)


def _mask(words: Words, spans: Sequence[Span]) -> Bool:
    mask = np.zeros(len(words), dtype=bool)
    for span in spans:
        first, last = word_range(words, *span)
        mask[first:last] = True
    return mask
