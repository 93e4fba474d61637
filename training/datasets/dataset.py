"""What is read of a data set, and its labelled pairs: read from lists, sampled, divided."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.judgements import PARTS
from index.document import Document
from index.errors import CorpusError, DocumentError
from training.data.corpus_folder import part_by_hash, unit_hash
from training.datasets.lines import one_file_a_part, read_csv, read_label

# Shares of the training, validation and test parts.
Shares = tuple[float, float, float]
TENTHS: Shares = (0.8, 0.1, 0.1)
_COLUMNS = ("label", "document", "document")


class LabelledIds(NamedTuple):
    """The ids of two documents, and whether they match."""

    source: str
    target: str
    label: bool


@dataclass(frozen=True, slots=True)
class DataSet:
    """The content of a data set.

    Attributes:
        documents: read while the corpus is written, so that it may be larger than the memory.
        pairs: by part, train, valid or test.
        judgements: (query, document, relevance).
        queries: that are no documents.
        parts: of documents, or of queries that are no documents.
        left_out: how much was left out, by reason.
    """

    documents: Iterable[Document]
    pairs: Mapping[str, Sequence[LabelledIds]] = field(default_factory=dict)
    judgements: Iterable[tuple[str, str, int]] = ()
    queries: Sequence[Document] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)


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


def ends(pair: LabelledIds) -> tuple[str, str]:
    """Return both documents of a pair, the same for (a, b) and (b, a)."""
    return min(pair.source, pair.target), max(pair.source, pair.target)


def read_pair_lists(
    paths: Sequence[Path],
    source: Path,
    read_rows: Callable[[Path], Iterable[tuple[str, list[str]]]] = lambda path: read_csv(
        path, _COLUMNS, "\t"
    ),
) -> dict[str, list[LabelledIds]]:
    """Read lists of `label TAB document TAB document`, one for each part.

    Args:
        read_rows: gives label and both documents of each row of a file, with its `file:line`.
    """
    listed: dict[str, list[LabelledIds]] = {}
    known: dict[tuple[str, str], tuple[bool, str]] = {}
    for part, path in one_file_a_part(paths, source).items():
        listed[part] = []
        for where, row in read_rows(path):
            label, a, b = (column.strip() for column in row)
            pair = LabelledIds(a, b, read_label(label, where))
            before, earlier = known.setdefault(ends(pair), (pair.label, where))
            if before != pair.label:
                raise CorpusError(f"{where}: {a!r} and {b!r} have another label at {earlier}")
            listed[part].append(pair)
        if not listed[part]:
            raise CorpusError(f"{path}: holds no pair")
    return listed


def divide(pairs: Iterable[LabelledIds], shares: Shares) -> dict[str, list[LabelledIds]]:
    """Divide pairs into parts by a hash of their ends, each label by itself.

    Documents may be shared between parts, as in the papers.
    """
    divided: dict[str, list[LabelledIds]] = {part: [] for part in PARTS}
    kept = list(pairs)
    for label in (True, False):
        pair_of = {str(ends(pair)): pair for pair in kept if pair.label == label}
        for key, part in part_by_hash(pair_of, "pair", shares).items():
            divided[part].append(pair_of[key])
    return divided


def add_negatives(
    positives: Sequence[tuple[str, str]],
    candidates: Callable[[str], Sequence[str]],
) -> tuple[list[LabelledIds], int]:
    """Pair the source of each positive pair with a document that it does not match, by a hash.

    Args:
        positives: pairs of ids, the source first.
        candidates: returns the ids that may be paired with a source.

    Returns:
        The positive and negative pairs, and for how many positive ones there is no negative one.
    """
    pairs = [LabelledIds(a, b, True) for a, b in positives]
    used = {ends(pair) for pair in pairs}
    missing = 0
    for number, (source, target) in enumerate(positives):
        some = candidates(source)
        start = int(unit_hash(f"negative {number} {source} {target}") * len(some))
        for step in range(len(some)):
            pair = LabelledIds(source, some[(start + step) % len(some)], False)
            if pair.source != pair.target and ends(pair) not in used:
                used.add(ends(pair))
                pairs.append(pair)
                break
        else:
            missing += 1
    return pairs, missing


def without_missing(
    pairs: Mapping[str, Sequence[LabelledIds]], known: Iterable[str], left_out: Counter[str]
) -> dict[str, list[LabelledIds]]:
    """Leave out the pairs of documents whose text is missing, and count them."""
    having = set(known)
    kept = {
        part: [pair for pair in some if having.issuperset(ends(pair))]
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


def paired_ids(pairs: Mapping[str, Sequence[LabelledIds]]) -> set[str]:
    """Return the ids of all documents of pairs."""
    return {name for some in pairs.values() for pair in some for name in ends(pair)}
