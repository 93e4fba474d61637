"""Splits of corpora into parts, and checks for data leakage between them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from encoder.arrays import Int64
from evaluation.judgements import PARTS, Pair
from index.errors import CorpusError

TRAIN, VALID, TEST = range(len(PARTS))
LEFT_OUT = -1  # a document that the splits do not name
_VALID_SHARE = 0.1  # of the documents, or pairs, that no file gives a part
_NAMED = 5  # leaks in a message
_ALLOWED = "--allow-shared-documents trains nevertheless; validation is then optimistic"


def given_parts(ids: Sequence[str], splits: Mapping[str, str] | None) -> Int64:
    """Return the part [N] of each document as the splits give it; LEFT_OUT where they do not."""
    known = splits or {}
    parts = [PARTS.index(known[name]) if name in known else LEFT_OUT for name in ids]
    return np.array(parts, dtype=np.int64)


def parts_of_pairs(
    ids: Sequence[str], pairs: Mapping[str, Sequence[Pair]], *, allow_shared: bool = False
) -> Int64:
    """Return the part [N] of each document by the files of pairs that name it, else LEFT_OUT.

    Args:
        ids: N document ids.
        pairs: by part, as the names of the files say.
        allow_shared: whether a document may be in the pairs of two parts; it is then of the first
            of them in the order train, valid, test.

    Raises:
        CorpusError: a leak: a document is in the pairs of two parts, and that is not allowed.
    """
    part_of: dict[str, tuple[str, str]] = {}
    leaks: list[str] = []
    for part in PARTS:
        for pair in pairs.get(part, ()):
            for name in (pair.source, pair.target):
                before, where = part_of.setdefault(name, (part, pair.where))
                if before != part:
                    leaks.append(f"{name!r} is at {where} and at {pair.where}")
    if not allow_shared:
        _refuse("documents are in the pairs of two parts", leaks, _ALLOWED)
    return given_parts(ids, {name: part for name, (part, _) in part_of.items()})


def check_repeated_pairs(pairs: Mapping[str, Sequence[Pair]]) -> None:
    """Check that no pair, in whichever direction, is in the files of two parts.

    Raises:
        CorpusError: naming the first such pairs.
    """
    found: dict[tuple[str, str], tuple[str, str]] = {}
    leaks = []
    for part, some in pairs.items():
        for pair in some:
            before, where = found.setdefault(pair.ends, (part, pair.where))
            if before != part:
                leaks.append(f"{pair.source!r} and {pair.target!r} are at {where} and {pair.where}")
    _refuse("pairs are in two parts", leaks)


def choose_parts(parts: Int64, hashes: Sequence[str], known: Mapping[str, int], seed: int) -> Int64:
    """Assign a part [N] to each document that has none.

    A text that another corpus gives a part keeps it. Of the others the tenth whose hashes come
    first, seeded, is for validation: by the text and not the id, so that equal texts stay together.

    Args:
        parts: Int64[N], LEFT_OUT where there is none yet.
        hashes: N hashes of the texts.
        known: part by text hash.
        seed: of the choice.
    """
    free = sorted({h for h, part in zip(hashes, parts, strict=True) if part == LEFT_OUT} - {*known})
    order = sorted(free, key=lambda h: hashlib.sha256(f"{seed} {h}".encode()).digest())
    valid = set(order[: valid_number(len(order))])
    chosen = [
        part if part != LEFT_OUT else known.get(h, VALID if h in valid else TRAIN)
        for h, part in zip(hashes, parts.tolist(), strict=True)
    ]
    return np.array(chosen, dtype=np.int64)


def valid_number(count: int) -> int:
    """Return how many of some documents or pairs are for validation."""
    return max(1, round(_VALID_SHARE * count)) if count > 1 else 0


def check_equal_texts(documents: Iterable[tuple[str, str, int]]) -> None:
    """Check that no text is both for training and for validation or testing.

    Args:
        documents: (name to print, text hash, part) of each document of all corpora.

    Raises:
        CorpusError: naming the first such documents.
    """
    trained: dict[str, str] = {}
    held_out: dict[str, tuple[str, int]] = {}
    for name, text_hash, part in documents:
        if part == TRAIN:
            trained.setdefault(text_hash, name)
        elif part != LEFT_OUT:
            held_out.setdefault(text_hash, (name, part))
    leaks = [
        f"{trained[h]} (train) and {name} ({PARTS[part]})"
        for h, (name, part) in held_out.items()
        if h in trained
    ]
    _refuse("equal texts are in training and held out", leaks, _ALLOWED)


def check_crossing_pairs(
    pairs: Sequence[Pair], sources: Int64, targets: Int64, part: str | None
) -> None:
    """Check that both documents of pairs are in the part that their file is for.

    Args:
        pairs: P pairs of one file.
        sources: Int64[P], the part of each source.
        targets: Int64[P], the part of each target.
        part: what the name of the file says, if anything.

    Raises:
        CorpusError: naming the first such pairs.
    """
    leaks = []
    for pair, a, b in zip(pairs, sources.tolist(), targets.tolist(), strict=True):
        if LEFT_OUT not in (a, b) and (a != b or (part is not None and PARTS[a] != part)):
            of = f"{pair.source!r} is {PARTS[a]} and {pair.target!r} is {PARTS[b]}"
            leaks.append(f"{pair.where}: {of}")
    _refuse("pairs cross the splits", leaks)


def _refuse(what: str, leaks: Sequence[str], way_out: str = "") -> None:
    if leaks:
        rest = [f"and {len(leaks) - _NAMED} more"] if len(leaks) > _NAMED else []
        said = [*leaks[:_NAMED], *rest, *([way_out] if way_out else [])]
        raise CorpusError(f"a leak: {what}: {'; '.join(said)}")
