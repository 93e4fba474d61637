"""Comparing two texts: score, relation, passages, coverage, sections."""

import numpy as np

from encoder.alignment import align_texts
from encoder.alignment_rule import ALIGNMENT_RULE, AlignmentRule
from encoder.comparison import Comparison
from encoder.read_text import ReadText, span_vectors
from encoder.relation import gather_evidence, judge_relation


def compare_texts(
    left: ReadText,
    right: ReadText,
    *,
    probability: float | None = None,
    rule: AlignmentRule = ALIGNMENT_RULE,
) -> Comparison:
    """Compare two texts from their vectors and words; nothing is encoded.

    Args:
        left: one text.
        right: the other, of the same checkpoint and adapter.
        probability: that they match, as a calibration tells.
        rule: the thresholds.
    """
    score = document_score(left, right)
    alignment = align_texts(left, right, rule)
    ours = span_vectors(left, [section.span for section in left.sections])
    theirs = span_vectors(right, [section.span for section in right.sections])
    return Comparison(
        score=score,
        probability=probability,
        relation=judge_relation(left, right, score, alignment, rule),
        evidence=gather_evidence(left, right, score, alignment, rule),
        left_sections=left.sections,
        right_sections=right.sections,
        section_scores=np.clip(ours @ theirs.T, -1.0, 1.0),
        passages=alignment.passages,
        left_coverage=alignment.left.all,
        right_coverage=alignment.right.all,
    )


def document_score(left: ReadText, right: ReadText) -> float:
    """Return the cosine of two document vectors."""
    return float(np.clip(left.vector @ right.vector, -1.0, 1.0))
