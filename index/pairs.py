"""Pairs of documents with a label, as training and evaluation read them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from index.errors import CorpusError
from index.lines import BadLine, read_lines
from index.vector_index import Int64


@dataclass(frozen=True, slots=True)
class Pair:
    """Two documents that are similar (`label`) or not, and where it is said: `file:line`."""

    source: str
    target: str
    label: bool
    where: str


@dataclass(frozen=True, slots=True)
class PairRows:
    """P pairs as rows of a corpus.

    Attributes:
        sources: Int64[P].
        targets: Int64[P].
        labels: Bool[P].
    """

    sources: Int64
    targets: Int64
    labels: NDArray[np.bool_]


def read_pairs(path: Path) -> list[Pair]:
    """Read pairs as JSON Lines, plain or gzip: `{"source": id, "target": id, "label": 0 or 1}`.

    A pair that is repeated with the same label counts once; (a, b) and (b, a) are two pairs, which
    must have the same label.

    Raises:
        CorpusError: naming file and line: no JSON object, no source, target or label, a label that
            is not 0 or 1, a document paired with itself, one pair with two labels; or there is no
            file, or no pair in it.
    """
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file")
    pairs: dict[tuple[str, str], Pair] = {}
    for line in read_lines(path):
        where = f"{path}:{line.number}"
        if isinstance(line, BadLine):
            raise CorpusError(f"{where}: {line.reason}")
        if not line.text.strip():
            continue
        pair = _parse_pair(line.text, where)
        for key in ((pair.source, pair.target), (pair.target, pair.source)):
            if key in pairs and pairs[key].label != pair.label:
                raise CorpusError(
                    f"{where}: {pair.source!r} and {pair.target!r} have the label "
                    f"{int(pair.label)} here and {int(pairs[key].label)} at {pairs[key].where}"
                )
        pairs.setdefault((pair.source, pair.target), pair)
    if not pairs:
        raise CorpusError(f"{path}: holds no pair")
    return list(pairs.values())


def find_pairs(pairs: Sequence[Pair], ids: Sequence[str]) -> PairRows:
    """Find the documents of pairs among the N ids of a corpus.

    Raises:
        CorpusError: naming the first pair whose document is missing, and the document.
    """
    row_of = {document_id: row for row, document_id in enumerate(ids)}
    for pair in pairs:
        for name in (pair.source, pair.target):
            if name not in row_of:
                raise CorpusError(f"{pair.where}: the corpus has no document {name!r}")
    return PairRows(
        sources=np.array([row_of[pair.source] for pair in pairs], dtype=np.int64),
        targets=np.array([row_of[pair.target] for pair in pairs], dtype=np.int64),
        labels=np.array([pair.label for pair in pairs], dtype=np.bool_),
    )


def _parse_pair(text: str, where: str) -> Pair:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: is not JSON") from error
    if not isinstance(record, dict):
        raise CorpusError(f"{where}: is not a JSON object")
    source, target = (_document_id(record, field, where) for field in ("source", "target"))
    if "label" not in record:
        raise CorpusError(f"{where}: label: is missing")
    label = record["label"]
    if not isinstance(label, int | float) or label not in (0, 1):
        raise CorpusError(f"{where}: label: is {str(label)[:20]!r}, not 0 or 1")
    if source == target:
        raise CorpusError(f"{where}: {source!r} is paired with itself")
    return Pair(source, target, bool(label), where)


def _document_id(record: dict[str, Any], field: str, where: str) -> str:
    if field not in record:
        raise CorpusError(f"{where}: {field}: is missing")
    value = record[field]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # as in a corpus
    if not isinstance(value, str) or not value:
        raise CorpusError(f"{where}: {field}: is not a document id")
    return value
