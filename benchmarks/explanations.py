"""What explanations are measured by: aligned characters, coverage and relations of pairs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.planted_pairs import PlantedPair
from encoder.alignment_rule import AlignmentRule
from encoder.compare import compare_texts
from encoder.comparison import Comparison, Relation, Span
from encoder.onnx_encoder import OnnxEncoder
from encoder.read_text import ReadText, read_text
from encoder.tokenizer import BlockTokenizer
from encoder.words import find_words

RELATIONS: tuple[Relation, ...] = (
    "identical", "near-copy", "paraphrase", "same topic", "unrelated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadPair:
    """A pair with both texts read and encoded."""

    pair: PlantedPair
    left: ReadText
    right: ReadText


@dataclass(frozen=True, slots=True)
class Judged:
    """How right one explanation is; characters of words, both sides together.

    Attributes:
        pair: what was compared.
        hits: aligned characters that are shared.
        aligned: characters aligned.
        shared: characters shared.
        coverage_errors: of the left and of the right text, absolute.
        relation: the one that was named.
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
    known: dict[str, ReadText] = {}
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.left, pair.right)))
    for text in texts:
        blocks = tokenizer(text)
        encoded = encoder.encode([blocks])
        offsets = np.array(blocks.offsets, dtype=np.int64)
        known[text] = read_text(
            text, encoded.document_vectors[0], encoded.block_vectors[0], offsets
        )
    return [ReadPair(pair, known[pair.left], known[pair.right]) for pair in pairs]


def judge_pairs(pairs: Iterable[ReadPair], rule: AlignmentRule) -> list[Judged]:
    """Compare each pair and say how right that is."""
    return [_judge(one.pair, compare_texts(one.left, one.right, rule=rule)) for one in pairs]


def precision_recall(judged: Sequence[Judged]) -> tuple[float, float]:
    """Return precision and recall of the aligned characters of some pairs, all taken together."""
    hits = sum(one.hits for one in judged)
    aligned, shared = (sum(getattr(one, name) for one in judged) for name in ("aligned", "shared"))
    return hits / aligned if aligned else 1.0, hits / shared if shared else 1.0


def _judge(pair: PlantedPair, found: Comparison) -> Judged:
    counted = [one for one in found.passages if one.kind != "similar"]
    sides = (
        _counts(pair.left, [one.left for one in counted], pair.left_spans),
        _counts(pair.right, [one.right for one in counted], pair.right_spans),
    )
    errors = (
        abs(found.left_coverage - sides[0][2] / sides[0][3]),
        abs(found.right_coverage - sides[1][2] / sides[1][3]),
    )
    hits, aligned, shared = (sides[0][part] + sides[1][part] for part in range(3))
    return Judged(pair, hits, aligned, shared, errors, found.relation)


def _counts(text: str, aligned: Sequence[Span], shared: Sequence[Span]) -> tuple[int, ...]:
    """Return the characters of words that are both, aligned, shared, and all of them."""
    words = find_words(text)
    of_words = _mask(len(text), zip(words.starts.tolist(), words.ends.tolist(), strict=True))
    ours, theirs = _mask(len(text), aligned) & of_words, _mask(len(text), shared) & of_words
    return tuple(int(mask.sum()) for mask in (ours & theirs, ours, theirs, of_words))


def _mask(length: int, spans: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    mask = np.zeros(length, dtype=bool)
    for start, end in spans:
        mask[start:end] = True
    return mask
