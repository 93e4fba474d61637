"""Pairs of texts in CSV: label, text, text.

The form in which Zhou et al. distribute AAN-Abs, OC, S2ORC and PAN (EMNLP 2020), where
Match-Ignition takes them from. U+0001 marks the sentences that cite or copy the other text; the
marks are no part of the text.
"""

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
    read_csv,
    read_label,
    require_files,
    require_folder,
)

COLUMNS = ("label", "source", "target")
_MARK = "\x01"


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
    for where, (label, *texts) in read_csv(path, COLUMNS):
        first, second = (_to_document(text, where) for text in texts)
        yield _Row(where, read_label(label.strip(), where), (first, second))


def _to_document(text: str, where: str) -> Document:
    text = text.replace(_MARK, "").strip()
    unnamed = make_document(where, "text", text)
    return make_document(where, unnamed.content_hash.hex()[:16], text)
