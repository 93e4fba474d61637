"""Which part each labelled pair of a corpus belongs to, and which part its documents belong to.

What is held out is not seen in training. A document is therefore in the pairs of one part only,
unless a job allows shared documents: then the file of a pair decides, and a document of a training
pair counts as seen.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64
from evaluation.judgements import PARTS, Pair, PairRows, find_pairs, read_pairs, read_splits
from index.errors import CorpusError
from training.data.files import CorpusFiles, part_in_name

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
        pairs: by part, as the names of the files say.
        allow_shared: whether a document may be in the pairs of two parts; it is then of the first
            of them in the order train, valid, test.
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
    """Check that no pair, in whichever direction, is in the files of two parts."""
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
        sources: Int64[P], the part of each source.
        targets: Int64[P], the part of each target.
        part: what the name of the file says, if anything.
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


@dataclass(frozen=True, slots=True)
class PairFile:
    """The labelled pairs of one file, or some of them.

    Attributes:
        part: of all of them, "train", "valid" or "test"; None where their documents decide.
        pairs: as they are in the file.
    """

    part: str | None
    pairs: Sequence[Pair]


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """What a corpus of N documents has of labelled pairs.

    Attributes:
        files: with their pairs.
        parts: Int64[N], the part that splits or pairs give each document; else LEFT_OUT.
        shared: whether the pairs of two parts may have documents in common.
        splits_unknown: documents that the splits name and the corpus does not have.
    """

    files: Sequence[PairFile]
    parts: Int64
    shared: bool
    splits_unknown: int

    @property
    def given(self) -> bool:
        """Whether any document is given a part."""
        return bool((self.parts != LEFT_OUT).any())


def read_labelled_pairs(
    files: CorpusFiles, ids: Sequence[str], seed: int = 0, *, allow_shared: bool = False
) -> LabelledPairs:
    """Read the pairs of a corpus, and the parts that its files give to documents.

    Args:
        seed: of the tenth of the pairs that is for validation where documents are shared and the
            name of a file does not say what it is for.
        allow_shared: whether, without splits, the pairs of two parts may share documents.
    """
    splits = read_splits(files.splits) if files.splits else None
    shared = allow_shared and splits is None
    found = _read_files(files)
    if shared:
        check_repeated_pairs(_by_part(found))
        found = _divide(found, seed)
    if splits is None:
        parts = parts_of_pairs(ids, _by_part(found), allow_shared=shared)
    else:
        parts = given_parts(ids, splits)
        if (parts == LEFT_OUT).all():
            raise CorpusError(f"{files.splits}: names no document of {files.corpus}")
    return LabelledPairs(found, parts, shared, len(set(splits or ()) - set(ids)))


def place_pairs(
    labelled: LabelledPairs, ids: Sequence[str], parts: Int64
) -> tuple[Mapping[int, PairRows], int]:
    """Return the pairs of each part as rows, and how many are of none.

    Args:
        parts: Int64[N], those of `labelled`, and chosen ones where it gives none.
    """
    found = [find_pairs(file.pairs, ids) for file in labelled.files]
    of = [
        _parts_of(labelled, file, rows, parts)
        for file, rows in zip(labelled.files, found, strict=True)
    ]
    nothing = np.empty(0, dtype=np.int64)
    part_of = np.concatenate([nothing, *of])
    sources = np.concatenate([nothing, *(rows.sources for rows in found)])
    targets = np.concatenate([nothing, *(rows.targets for rows in found)])
    labels = np.concatenate([nothing.astype(np.bool_), *(rows.labels for rows in found)])
    placed = {}
    for number in range(len(PARTS)):
        here = part_of == number
        placed[number] = PairRows(sources[here], targets[here], labels[here])
    return placed, int((part_of == LEFT_OUT).sum())


def _parts_of(labelled: LabelledPairs, file: PairFile, rows: PairRows, parts: Int64) -> Int64:
    """Return the part of each pair of a file; LEFT_OUT where its documents are in two, or none."""
    if labelled.shared and file.part is not None:
        return np.full(len(file.pairs), PARTS.index(file.part), dtype=np.int64)
    sources, targets = parts[rows.sources], parts[rows.targets]
    if labelled.given:
        check_crossing_pairs(file.pairs, sources, targets, file.part)
    together: Int64 = np.where(sources == targets, sources, LEFT_OUT)
    return together


def check_pair_files(files: CorpusFiles, *, allow_shared: bool = False) -> None:
    """Check the pairs of a corpus for data leakage, before its documents are read."""
    found = _read_files(files)
    if files.splits is None:
        check_repeated_pairs(_by_part(found))
        parts_of_pairs((), _by_part(found), allow_shared=allow_shared)
        return
    splits = read_splits(files.splits)
    for file in found:
        sources = given_parts([pair.source for pair in file.pairs], splits)
        targets = given_parts([pair.target for pair in file.pairs], splits)
        check_crossing_pairs(file.pairs, sources, targets, file.part)


def check_held_out(corpora: Sequence[CorpusFiles]) -> None:
    """Check that some document may be held out, which pretraining is validated on."""
    splits = [corpus.splits for corpus in corpora]
    if all(path and PARTS[VALID] not in read_splits(path).values() for path in splits):
        raise CorpusError(
            f"{splits[0]}: no document is in {PARTS[VALID]!r}: pretraining stops by the loss of "
            "documents that it does not learn"
        )


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


def _read_files(files: CorpusFiles) -> list[PairFile]:
    return [PairFile(part_in_name(path), read_pairs(path)) for path in files.pairs]


def _divide(files: Sequence[PairFile], seed: int) -> list[PairFile]:
    """Give each pair a part: of those in files that say none, a tenth of each label is held out.

    A pair that another file gives a part keeps it.
    """
    divided = [file for file in files if file.part is not None]
    known = {pair.ends for file in divided for pair in file.pairs}
    for file in files:
        if file.part is None:
            free = [pair for pair in file.pairs if pair.ends not in known]
            held_out = _tenth(free, seed)
            trained = [pair for pair in free if pair.ends not in held_out]
            divided.append(PairFile(PARTS[TRAIN], trained))
            divided.append(PairFile(PARTS[VALID], [p for p in free if p.ends in held_out]))
            known.update(pair.ends for pair in free)
    return divided


def _tenth(pairs: Sequence[Pair], seed: int) -> set[tuple[str, str]]:
    """Return the ends of a tenth of the pairs of each label: those whose hashes come first."""
    chosen: set[tuple[str, str]] = set()
    for label in (False, True):
        some = {pair.ends for pair in pairs if pair.label == label}
        order = sorted(
            some, key=lambda ends: hashlib.sha256("\0".join([str(seed), *ends]).encode()).digest()
        )
        chosen.update(order[: valid_number(len(order))])
    return chosen


def _by_part(files: Sequence[PairFile]) -> dict[str, list[Pair]]:
    by_part: dict[str, list[Pair]] = {part: [] for part in PARTS}
    for file in files:
        if file.part is not None:
            by_part[file.part].extend(file.pairs)
    return by_part
