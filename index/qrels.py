"""Relevance judgements (qrels) and lists of ids, as evaluation reads them."""

import re
from collections.abc import Iterator
from pathlib import Path

from index.errors import CorpusError
from index.lines import BadLine, Line, read_lines

Qrels = dict[str, dict[str, int]]

_BEIR_HEADER = ["query-id", "corpus-id", "score"]
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")


def read_qrels(path: Path) -> Qrels:
    """Read judgements: query id -> document id -> relevance.

    Two formats, told apart by the first line, plain or gzip: TREC (`query 0 document relevance`)
    and BEIR (`query document relevance` under the header `query-id corpus-id score`). Columns are
    separated by tabs, or by white space where a line has no tab.

    Raises:
        CorpusError: naming file and line: a wrong number of columns, a relevance that is no
            integer, two judgements of one pair that differ; or there is no file, or no judgement
            in it.
    """
    qrels: Qrels = {}
    beir = False
    first = True
    for line in _lines(path):
        columns = _columns(line.text)
        if first and [column.lower() for column in columns] == _BEIR_HEADER:
            beir = True
        else:
            query, document, relevance = _judgement(columns, beir, f"{path}:{line.number}")
            if qrels.setdefault(query, {}).setdefault(document, relevance) != relevance:
                raise CorpusError(
                    f"{path}:{line.number}: {query!r} and {document!r} are judged "
                    f"{qrels[query][document]} before and {relevance} here"
                )
        first = False
    if not qrels:
        raise CorpusError(f"{path}: holds no judgement")
    return qrels


def read_ids(path: Path) -> list[str]:
    """Read one id a line, plain or gzip, in order; empty lines and repetitions are left out.

    Raises:
        CorpusError: naming the line that cannot be read; or there is no file, or no id in it.
    """
    ids = list(dict.fromkeys(line.text.strip() for line in _lines(path)))
    if not ids:
        raise CorpusError(f"{path}: holds no id")
    return ids


def _lines(path: Path) -> Iterator[Line]:
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file")
    for line in read_lines(path):
        if isinstance(line, BadLine):
            raise CorpusError(f"{path}:{line.number}: {line.reason}")
        if line.text.strip():
            yield line


def _columns(text: str) -> list[str]:
    # Ids of TSV files may have spaces in them.
    return [column.strip() for column in text.strip().split("\t" if "\t" in text else None)]


def _judgement(columns: list[str], beir: bool, where: str) -> tuple[str, str, int]:
    if len(columns) != (3 if beir else 4):
        expected = "query, document, relevance" if beir else "query, 0, document, relevance"
        header = "" if beir else f" (three only under the header {' '.join(_BEIR_HEADER)!r})"
        raise CorpusError(f"{where}: {len(columns)} columns, not {expected}{header}")
    query, document, relevance = columns[0], columns[-2], columns[-1]
    if not query or not document:
        raise CorpusError(f"{where}: an id is empty")
    if not _INTEGER.fullmatch(relevance):
        raise CorpusError(f"{where}: the relevance {relevance[:20]!r} is no integer")
    return query, document, int(relevance)
