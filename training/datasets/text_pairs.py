"""Pairs of texts in CSV: label, text, text.

The form in which Zhou et al. distribute AAN-Abs, OC, S2ORC and PAN (EMNLP 2020), where
Match-Ignition takes them from. U+0001 marks the sentences that cite or copy the other text; the
marks are no part of the text.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.datasets.dataset import DataSet, LabelledIds, ends, make_document
from training.datasets.lines import (
    files_below,
    one_file_a_part,
    read_label,
    require_files,
    require_folder,
)

COLUMNS = ("label", "source", "target")
_MARK = "\x01"
_LARGEST = 16 * 2**20  # characters of a column; the csv module allows 131,072, less than a book


class _Row(NamedTuple):
    """One pair of texts.

    Attributes:
        where: `file:line` at which its row ends.
        label: whether they match.
        documents: the first and the second text.
    """

    where: str
    label: bool
    documents: tuple[Document, Document]


def find_text_pairs(source: Path) -> dict[str, Path]:
    """Return the file of each part, train, valid and test."""
    require_folder(source)
    paths = files_below(source, "*.csv")
    return one_file_a_part(require_files(paths, source, "list of pairs *.csv"), source)


def read_text_pairs(source: Path, progress: Progress) -> DataSet:
    """Read pairs of texts; equal texts are one document, whose id is a hash of it.

    A pair that an earlier row or part has is left out and counted, and so is a text that is
    paired with itself.
    """
    paths = find_text_pairs(source)
    left_out: Counter[str] = Counter()
    labels: dict[tuple[str, str], bool] = {}
    pairs: dict[str, list[LabelledIds]] = {}
    progress.started("reading pairs", None, unit="pairs")
    for part, path in paths.items():
        pairs[part] = []
        for row in _read_rows(path):
            progress.advanced(1)
            a, b = (document.id for document in row.documents)
            pair = LabelledIds(a, b, row.label)
            known = labels.get(ends(pair))
            if a == b:
                left_out["pairs of a text with itself"] += 1
            elif known is None:
                labels[ends(pair)] = row.label
                pairs[part].append(pair)
            elif known == row.label:
                left_out["pairs that are there before"] += 1
            else:
                raise CorpusError(f"{row.where}: both texts have another label in an earlier row")
        if not pairs[part]:
            raise CorpusError(f"{path}: holds no pair")
    return DataSet(_documents(list(paths.values())), pairs, left_out=left_out)


def _documents(paths: list[Path]) -> Iterator[Document]:
    """Read the texts again while they are written, so that memory need not hold them."""
    seen: set[str] = set()
    for path in paths:
        for row in _read_rows(path):
            for document in row.documents:
                if document.id not in seen:
                    seen.add(document.id)
                    yield document


def _read_rows(path: Path) -> Iterator[_Row]:
    """Read the rows of a file; a first row of names is skipped."""
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST))
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, strict=True)
        try:
            for number, columns in enumerate(rows):
                where = f"{path}:{rows.line_num}"
                named = number == 0 and columns[:1] and columns[0].strip().lower() == COLUMNS[0]
                if columns and not named:
                    yield _to_row(columns, where)
        except csv.Error as error:
            raise CorpusError(f"{path}:{rows.line_num}: is not CSV: {error}") from error
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}: is not UTF-8 after line {rows.line_num}") from error


def _to_row(columns: list[str], where: str) -> _Row:
    if len(columns) != len(COLUMNS):
        raise CorpusError(f"{where}: has {len(columns)} columns, not {', '.join(COLUMNS)}")
    label, *texts = columns
    first, second = (_to_document(text, where) for text in texts)
    return _Row(where, read_label(label.strip(), where), (first, second))


def _to_document(text: str, where: str) -> Document:
    text = text.replace(_MARK, "").strip()
    unnamed = make_document(where, "text", text)
    return make_document(where, unnamed.content_hash.hex()[:16], text)
