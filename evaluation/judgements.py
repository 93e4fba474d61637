"""Files of judgements: relevance (qrels), labelled pairs, splits, lists of ids."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Bool, Int64
from index.corpus.json_lines import Line, parse_object, read_lines
from index.corpus.records import document_id
from index.errors import CorpusError, DocumentError

PARTS = ("train", "valid", "test")


def read_splits(path: Path) -> dict[str, str]:
    """Read lines `document id TAB train|valid|test`, plain or gzip: id -> part.

    Raises:
        CorpusError: there is no file, or no line in it; or a line has not two columns, an unknown
            part, or a document of another part. Names file and line.
    """
    splits: dict[str, str] = {}
    for line in text_lines(path):
        where = f"{path}:{line.number}"
        columns = [column.strip() for column in line.text.split("\t")]
        if len(columns) != 2 or not columns[0]:
            raise CorpusError(f"{where}: is not a document id, a tab and one of {', '.join(PARTS)}")
        document, part = columns
        if part not in PARTS:
            raise CorpusError(f"{where}: the part {part[:20]!r} is none of {', '.join(PARTS)}")
        if splits.setdefault(document, part) != part:
            raise CorpusError(f"{where}: {document!r} is already in {splits[document]}")
    if not splits:
        raise CorpusError(f"{path}: holds no document")
    return splits


@dataclass(frozen=True, slots=True)
class Pair:
    """Two documents that are similar (`label`) or not; `where` is their `file:line`, if any."""

    source: str
    target: str
    label: bool
    where: str = ""

    @property
    def ends(self) -> tuple[str, str]:
        """Both documents, the same for (a, b) and (b, a)."""
        return min(self.source, self.target), max(self.source, self.target)


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
    labels: Bool


def read_pairs(path: Path) -> list[Pair]:
    """Read pairs as JSON Lines, plain or gzip: `{"source": id, "target": id, "label": 0 or 1}`.

    A pair that is repeated with the same label counts once; (a, b) and (b, a) are two pairs, which
    must have the same label.

    Raises:
        CorpusError: there is no file, or no pair in it; or a line is not a JSON object with source,
            target and a label of 0 or 1, pairs a document with itself, or contradicts another line.
            Names file and line.
    """
    pairs: dict[tuple[str, str], Pair] = {}
    for line in text_lines(path):
        where = f"{path}:{line.number}"
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
        CorpusError: a document of a pair is missing; names the document and the line of the pair.
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
        record = parse_object(text)
        source, target = document_id(record, "source"), document_id(record, "target")
        if record.get("label") not in (0, 1):
            raise DocumentError("label", f"is {str(record.get('label'))[:20]!r}, not 0 or 1")
    except (CorpusError, DocumentError) as error:
        raise CorpusError(f"{where}: {error}") from error
    if source == target:
        raise CorpusError(f"{where}: {source!r} is paired with itself")
    return Pair(source, target, bool(record["label"]), where)


Qrels = dict[str, dict[str, int]]

_BEIR_HEADER = ["query-id", "corpus-id", "score"]
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")


def read_qrels(path: Path) -> Qrels:
    """Read judgements: query id -> document id -> relevance.

    There are two formats, plain or gzip, distinguished by the first line: TREC (`query 0 document
    relevance`) and BEIR (`query document relevance` after the header `query-id corpus-id score`).
    Columns are separated by tabs, or by white space in lines without a tab.

    Raises:
        CorpusError: there is no file, or no judgement in it; or a line has a wrong number of
            columns, a relevance that is not an integer, or contradicts another line. Names file
            and line.
    """
    qrels: Qrels = {}
    beir = False
    first = True
    for line in text_lines(path):
        columns = _columns(line.text)
        if first and [column.lower() for column in columns] == _BEIR_HEADER:
            beir = True
        else:
            query, document, relevance = _judgement(columns, beir, f"{path}:{line.number}")
            if qrels.setdefault(query, {}).setdefault(document, relevance) != relevance:
                raise CorpusError(
                    f"{path}:{line.number}: the relevance of {document!r} for {query!r} is "
                    f"{relevance}, but {qrels[query][document]} in an earlier line"
                )
        first = False
    if not qrels:
        raise CorpusError(f"{path}: holds no judgement")
    return qrels


def text_lines(path: Path) -> Iterator[Line]:
    """Read the lines of a file that are not empty, plain or gzip; a bad line is an error."""
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file")
    for line in read_lines(path):
        if line.fault:
            raise CorpusError(f"{path}:{line.number}: {line.fault}")
        if line.text.strip():
            yield line


def _columns(text: str) -> list[str]:
    # Ids in TSV files may contain spaces.
    return [column.strip() for column in text.strip().split("\t" if "\t" in text else None)]


def _judgement(columns: list[str], beir: bool, where: str) -> tuple[str, str, int]:
    if len(columns) != (3 if beir else 4):
        expected = "query, document, relevance" if beir else "query, 0, document, relevance"
        header = "" if beir else f" (three only after the header {' '.join(_BEIR_HEADER)!r})"
        raise CorpusError(f"{where}: {len(columns)} columns, not {expected}{header}")
    query, document, relevance = columns[0], columns[-2], columns[-1]
    if not query or not document:
        raise CorpusError(f"{where}: an id is empty")
    if not _INTEGER.fullmatch(relevance):
        raise CorpusError(f"{where}: the relevance {relevance[:20]!r} is not an integer")
    return query, document, int(relevance)
