"""Labelled pairs of data sets: sampled, divided."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evaluation.judgements import PARTS, Pair
from index.document import Document
from index.errors import CorpusError, DocumentError
from training.data.corpus_folder import part_by_hash, unit_hash

# Shares of the training, validation and test parts.
Shares = tuple[float, float, float]
TENTHS: Shares = (0.8, 0.1, 0.1)


def make_document(
    where: str, name: str, text: str, title: str = "", metadata: Mapping[str, Any] | None = None
) -> Document:
    """Make a document.

    Args:
        where: `file` or `file:line` that it is from.
        text: not empty.
        title: may be empty.
    """
    try:
        return Document(id=name, text=text, title=title, metadata=metadata or {})
    except DocumentError as error:
        raise CorpusError(f"{where}: {error}") from error


def divide(pairs: Iterable[Pair], shares: Shares) -> dict[str, list[Pair]]:
    """Divide pairs into parts by a hash of their ends, each label by itself.

    Documents may be shared between parts, as in the papers.
    """
    divided: dict[str, list[Pair]] = {part: [] for part in PARTS}
    kept = list(pairs)
    for label in (True, False):
        pair_of = {str(pair.ends): pair for pair in kept if pair.label == label}
        for key, part in part_by_hash(pair_of, "pair", shares).items():
            divided[part].append(pair_of[key])
    return divided


def add_negatives(
    positives: Sequence[tuple[str, str]],
    candidates: Callable[[str], Sequence[str]],
) -> tuple[list[Pair], int]:
    """Pair the source of each positive pair with a document that it does not match, by a hash.

    Args:
        positives: pairs of ids, the source first.
        candidates: returns the ids that may be paired with a source.

    Returns:
        The positive and negative pairs, and for how many positive ones there is no negative one.
    """
    pairs = [Pair(a, b, True) for a, b in positives]
    used = {pair.ends for pair in pairs}
    missing = 0
    for number, (source, target) in enumerate(positives):
        some = candidates(source)
        start = int(unit_hash(f"negative {number} {source} {target}") * len(some))
        for step in range(len(some)):
            pair = Pair(source, some[(start + step) % len(some)], False)
            if pair.source != pair.target and pair.ends not in used:
                used.add(pair.ends)
                pairs.append(pair)
                break
        else:
            missing += 1
    return pairs, missing


def without_missing(
    pairs: Mapping[str, Sequence[Pair]], known: Iterable[str], left_out: Counter[str]
) -> dict[str, list[Pair]]:
    """Leave out the pairs of documents whose text is missing, and count them."""
    having = set(known)
    kept = {
        part: [pair for pair in some if having.issuperset(pair.ends)]
        for part, some in pairs.items()
    }
    before, after = (sum(map(len, some.values())) for some in (pairs, kept))
    left_out["pairs without a text"] += before - after
    if len({pair.label for pair in kept["train"]}) < 2:
        raise CorpusError(
            f"of {before} pairs {after} have both texts: not enough to train with; is this the "
            "collection that the pairs are of?"
        )
    return kept


def paired_ids(pairs: Mapping[str, Sequence[Pair]]) -> set[str]:
    """Return the ids of all documents of pairs."""
    return {name for some in pairs.values() for pair in some for name in pair.ends}
