"""The share of the sentence blocks that the Transformer encodes: of a checkpoint and of vectors.

Vectors of different shares cannot be compared, so the fingerprint of a vector space names the share
and the method: "9f2c...-coverage-0.25". Without it, all blocks were encoded.
"""

from dataclasses import replace

from encoder.checkpoint import Checkpoint
from encoder.errors import CheckpointError

METHOD = "coverage"  # another way to select blocks needs another name
WHOLE = 1.0
_DECIMALS = 2


def check_share(share: float) -> float:
    """Return a share if it is one.

    Raises:
        ValueError: it is not over 0 and at most 1, or has more than two decimals.
    """
    if not 0.0 < share <= 1.0 or round(share, _DECIMALS) != share:
        raise ValueError(f"{share} is not from 0.01 to 1, with two decimals")
    return share


def with_reading_share(checkpoint: Checkpoint, share: float) -> Checkpoint:
    """Return a checkpoint that encodes this share of the blocks.

    Raises:
        CheckpointError: the vectors of its blocks, or of its sections, depend on the others, so
            that all must be encoded.
        ValueError: it is no share.
    """
    check_share(share)
    if share < WHOLE and not can_select(checkpoint):
        raise CheckpointError(
            f"{checkpoint.name}: a {checkpoint.architecture} encodes every sentence block of a "
            f"document: a reading share of {share:g} is not possible"
        )
    return replace(checkpoint, reading_share=share)


def can_select(checkpoint: Checkpoint) -> bool:
    """Whether some blocks of a document can be encoded without the others."""
    return checkpoint.segment_memory is None and not checkpoint.has_sections


def mark_fingerprint(fingerprint: str, share: float) -> str:
    """Return the fingerprint of vectors for which this share of the blocks was encoded."""
    return fingerprint if share == WHOLE else f"{fingerprint}-{METHOD}-{share:g}"


def split_fingerprint(marked: str) -> tuple[str, float]:
    """Return what `mark_fingerprint` was given; of vectors of another method, the whole and 1."""
    fingerprint, _, marks = marked.partition("-")
    method, _, share = marks.partition("-")
    try:
        return (fingerprint, check_share(float(share))) if method == METHOD else (marked, WHOLE)
    except ValueError:
        return marked, WHOLE
