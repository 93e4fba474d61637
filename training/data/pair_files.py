"""Which part each labelled pair of a corpus belongs to, and which part its documents belong to.

What is held out is not seen in training. A document is therefore in the pairs of one part only,
unless a job allows shared documents: then the file of a pair decides, and a document of a training
pair counts as seen.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from encoder.arrays import Int64
from evaluation.judgements import PARTS, Pair, PairRows, find_pairs, read_pairs, read_splits
from index.errors import CorpusError
from training.data.files import CorpusFiles, part_in_name

K = TypeVar("K", bound=Hashable)

TRAIN, VALID, TEST = range(len(PARTS))
LEFT_OUT = -1  # a document that the splits do not name
_VALID_SHARE = 0.1  # of the documents, or pairs, that no file gives a part
_NAMED = 5  # leaks in a message
_ALLOWED = "--allow-shared-documents trains nevertheless; validation is then optimistic"


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """What the files of a corpus say of pairs and parts.

    Attributes:
        pairs: by the part, "train", "valid" or "test", that the names of their files give them;
            None where their documents decide.
        part_of: the part of each document that splits or pairs give one.
        shared: whether the pairs of two parts may have documents in common; all have a part then.
    """

    pairs: Mapping[str | None, Sequence[Pair]]
    part_of: Mapping[str, str]
    shared: bool


def read_labelled_pairs(
    files: CorpusFiles, seed: int = 0, *, allow_shared: bool = False
) -> LabelledPairs:
    """Read pairs and splits, and check them for data leakage; no document is read for it.

    Args:
        seed: of the tenth of the pairs that is for validation where documents are shared and the
            name of a file does not say what it is for.
        allow_shared: whether, without splits, the pairs of two parts may share documents.
    """
    pairs: dict[str | None, list[Pair]] = {part: [] for part in (*PARTS, None)}
    for path in files.pairs:
        pairs[part_in_name(path)] += read_pairs(path)
    if files.splits:
        part_of = read_splits(files.splits)
        _check_crossing_pairs(pairs, part_of)
        return LabelledPairs(pairs, part_of, shared=False)
    _refuse("pairs are in two parts", _first_parts(pairs, lambda pair: [pair.ends])[1])
    if allow_shared:
        pairs = _divide(pairs, seed)
    part_of, leaks = _first_parts(pairs, lambda pair: (pair.source, pair.target))
    if not allow_shared:
        _refuse("documents are in the pairs of two parts", leaks, _ALLOWED)
        _check_crossing_pairs(pairs, part_of)
    return LabelledPairs(pairs, part_of, allow_shared)


def check_held_out(corpora: Sequence[CorpusFiles]) -> None:
    """Check that some document may be held out, which pretraining is validated on."""
    splits = [corpus.splits for corpus in corpora]
    if all(path and PARTS[VALID] not in read_splits(path).values() for path in splits):
        raise CorpusError(
            f"{splits[0]}: no document is in {PARTS[VALID]!r}: pretraining stops by the loss of "
            "documents that it does not learn"
        )


def choose_parts(parts: Int64, hashes: Sequence[str], known: Mapping[str, int], seed: int) -> Int64:
    """Assign a part [N] to each document that has none.

    A text that another corpus gives a part keeps it. Of the others a tenth is for validation:
    chosen by the text and not the id, so that equal texts stay together.

    Args:
        parts: Int64[N], LEFT_OUT where there is none yet.
    """
    free = {h for h, part in zip(hashes, parts, strict=True) if part == LEFT_OUT} - {*known}
    valid = _choose_tenth(free, seed)
    chosen = [
        part if part != LEFT_OUT else known.get(h, VALID if h in valid else TRAIN)
        for h, part in zip(hashes, parts.tolist(), strict=True)
    ]
    return np.array(chosen, dtype=np.int64)


def place_pairs(
    labelled: LabelledPairs, ids: Sequence[str], parts: Int64
) -> tuple[Mapping[int, PairRows], int]:
    """Return the pairs of each part as rows, and how many are of none.

    Args:
        parts: Int64[N], those of `labelled`, and chosen ones where it gives none.
    """
    rows = find_pairs([pair for some in labelled.pairs.values() for pair in some], ids)
    if labelled.shared:
        sizes = [len(labelled.pairs[part]) for part in PARTS]
        part_of = np.repeat(np.arange(len(PARTS)), sizes)
    else:
        sources, targets = parts[rows.sources], parts[rows.targets]
        part_of = np.where(sources == targets, sources, LEFT_OUT)
    placed = {}
    for number in range(len(PARTS)):
        here = part_of == number
        placed[number] = PairRows(rows.sources[here], rows.targets[here], rows.labels[here])
    return placed, int((part_of == LEFT_OUT).sum())


def held_out_edges(placed: Mapping[int, PairRows]) -> set[tuple[int, int]]:
    """Return the pairs that are not for training, as rows (lower, higher).

    Where documents are shared, both may be in the training part: nothing may pair them there.
    """
    return {
        (min(a, b), max(a, b))
        for part, pairs in placed.items()
        if part != TRAIN
        for a, b in zip(pairs.sources.tolist(), pairs.targets.tolist(), strict=True)
    }


def count_seen(
    hashes: Sequence[str], parts: Int64, placed: Mapping[int, PairRows], trained: set[str]
) -> int:
    """Return how many held-out texts training sees: of held-out documents, or of held-out pairs.

    Args:
        hashes: N hashes of the texts of a corpus.
        parts: Int64[N], the part of each document.
        trained: hashes of all texts of training.
    """
    rows = set(np.flatnonzero(parts > TRAIN).tolist())
    for part, pairs in placed.items():
        if part != TRAIN:
            rows.update(pairs.sources.tolist(), pairs.targets.tolist())
    return len({hashes[row] for row in rows} & trained)


def check_equal_texts(documents: Iterable[tuple[str, str, int]]) -> None:
    """Check that no text is both for training and for validation or testing.

    Args:
        documents: (name to print, text hash, part) of each document of all corpora.
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


def _first_parts(
    pairs: Mapping[str | None, Sequence[Pair]], keys: Callable[[Pair], Iterable[K]]
) -> tuple[dict[K, str], list[str]]:
    """Return the part of each key of the pairs of files, and the leaks: what is in two parts.

    That is of the first of them in the order train, valid, test.
    """
    found: dict[K, tuple[str, str]] = {}
    leaks = []
    for part in PARTS:
        for pair in pairs[part]:
            for key in keys(pair):
                before, where = found.setdefault(key, (part, pair.where))
                if before != part:
                    leaks.append(f"{key!r} is at {where} and at {pair.where}")
    return {key: part for key, (part, _) in found.items()}, leaks


def _check_crossing_pairs(
    pairs: Mapping[str | None, Sequence[Pair]], part_of: Mapping[str, str]
) -> None:
    """Check that both documents of pairs are in one part, the one that their file is for."""
    leaks = []
    for part, some in pairs.items():
        for pair in some:
            a, b = part_of.get(pair.source), part_of.get(pair.target)
            if a and b and (a != b or part not in (None, a)):
                of = f"{pair.source!r} is {a} and {pair.target!r} is {b}"
                leaks.append(f"{pair.where}: {of}")
    _refuse("pairs cross the splits", leaks)


def _refuse(what: str, leaks: Sequence[str], way_out: str = "") -> None:
    if leaks:
        rest = [f"and {len(leaks) - _NAMED} more"] if len(leaks) > _NAMED else []
        said = [*leaks[:_NAMED], *rest, *([way_out] if way_out else [])]
        raise CorpusError(f"a leak: {what}: {'; '.join(said)}")


def _divide(pairs: Mapping[str | None, Sequence[Pair]], seed: int) -> dict[str | None, list[Pair]]:
    """Give each pair a part: of those in files that say none, a tenth of each label is held out.

    A pair that another file gives a part keeps it.
    """
    divided = {part: list(pairs[part]) for part in (*PARTS, None)}
    known = {pair.ends for part in PARTS for pair in pairs[part]}
    free = [pair for pair in pairs[None] if pair.ends not in known]
    held_out: set[str] = set()
    for label in (False, True):
        held_out |= _choose_tenth({"\0".join(p.ends) for p in free if p.label == label}, seed)
    for pair in free:
        part = VALID if "\0".join(pair.ends) in held_out else TRAIN
        divided[PARTS[part]].append(pair)
    return divided | {None: []}


def _choose_tenth(keys: Iterable[str], seed: int) -> set[str]:
    """Return the tenth of the keys whose hashes come first, seeded; of two or more at least one."""
    order = sorted(keys, key=lambda key: hashlib.sha256(f"{seed} {key}".encode()).digest())
    return set(order[: max(1, round(_VALID_SHARE * len(order))) if len(order) > 1 else 0])
