"""The alignment of two texts: its score, and the places of the blocks that give most to it."""

from encoder.alignment.contributions import find_contributions
from encoder.alignment.space import choose_blocks
from encoder.arrays import Int64
from encoder.comparison.result import AlignedBlockPair, BlockAlignment, Span
from encoder.comparison.text import ComparableText


def align_blocks(left: ComparableText, right: ComparableText) -> BlockAlignment | None:
    """Align the sentence blocks of two texts as search does; None if one is in no space."""
    if left.aligned is None or right.aligned is None:
        return None
    found = find_contributions(left.aligned, right.aligned)
    ours, theirs = _spans(left, found.pairs[:, 0]), _spans(right, found.pairs[:, 1])
    amounts = found.similarities.tolist(), found.shares.tolist()
    pairs = (AlignedBlockPair(*one) for one in zip(ours, theirs, *amounts, strict=True))
    return BlockAlignment(found.score, tuple(pairs))


def _spans(read: ComparableText, aligned: Int64) -> list[Span]:
    """Return the characters of blocks, given by their places among those that are aligned."""
    blocks = choose_blocks(len(read.offsets))[aligned]
    return [Span(*place) for place in read.offsets[blocks].tolist()]
