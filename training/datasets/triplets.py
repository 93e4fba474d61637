"""Triplets in JSON Lines: texts A, B and C, and which of B and C is more similar to A.

The form of CAIL2019-SCM (Xiao et al., arXiv 1911.08962), facts of judgments in Chinese.
"""

from collections.abc import Iterator
from pathlib import Path

from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.datasets.dataset import DataSet, LabelledIds, make_document
from training.datasets.lines import files_of_parts, read_objects, text_field

_CHOICES = ("B", "C")


def read_triplets(source: Path, progress: Progress) -> DataSet:
    """Read triplets: A and the more similar text match, A and the other do not.

    Each text of each triplet is a document, whose id names part, line and text: a text that is the
    more similar in a triplet may be the other one in the next.
    """
    paths = files_of_parts(source, "list of triplets *.json", "*.json", "*.jsonl")
    pairs: dict[str, list[LabelledIds]] = {}
    progress.started("reading triplets", None, unit="triplets")
    for part, path in paths.items():
        pairs[part] = []
        for number, (where, record) in enumerate(read_objects([path]), start=1):
            progress.advanced(1)
            similar = text_field(record, "label", where).strip()
            if similar not in _CHOICES:
                raise CorpusError(f"{where}: the label is {similar[:20]!r}, not B or C")
            query = _id(part, number, "A")
            pairs[part] += [
                LabelledIds(query, _id(part, number, name), name == similar) for name in _CHOICES
            ]
        if not pairs[part]:
            raise CorpusError(f"{path}: holds no triplet")
    return DataSet(_documents(paths), pairs)


def _documents(paths: dict[str, Path]) -> Iterator[Document]:
    for part, path in paths.items():
        for number, (where, record) in enumerate(read_objects([path]), start=1):
            for name in ("A", *_CHOICES):
                text = text_field(record, name, where)
                yield make_document(f"{where}: {name}", _id(part, number, name), text)


def _id(part: str, number: int, name: str) -> str:
    return f"{part}-{number}-{name}"
