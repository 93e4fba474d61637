"""Triplets in JSON Lines: texts A, B and C, and which of B and C is more similar to A.

The form of CAIL2019-SCM (Xiao et al., arXiv 1911.08962), facts of judgments in Chinese.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet, LabelledIds
from training.datasets.dataset import make_document, read_pair_lists
from training.datasets.lines import files_of_parts, part_of_file, read_objects, text_field

_CHOICES = ("B", "C")


def read_triplets(source: Path, progress: Progress) -> DataSet:
    """Read triplets: A and the more similar text match, A and the other do not.

    Each text of each triplet is a document, whose id names part, line and text: a text that is the
    more similar in a triplet may be the other one in the next.
    """
    documents: list[Document] = []

    def read_rows(path: Path) -> Iterator[tuple[str, LabelledIds]]:
        for number, (where, record) in enumerate(read_objects([path]), start=1):
            similar = text_field(record, "label", where).strip()
            if similar not in _CHOICES:
                raise CorpusError(f"{where}: the label is {similar[:20]!r}, not B or C")
            id_of = {name: f"{part_of_file(path)}-{number}-{name}" for name in ("A", *_CHOICES)}
            for name, document_id in id_of.items():
                text = text_field(record, name, where)
                documents.append(make_document(f"{where}: {name}", document_id, text))
            for name in _CHOICES:
                yield where, LabelledIds(id_of["A"], id_of[name], name == similar)

    paths = files_of_parts(source, "list of triplets *.json", "*.json", "*.jsonl")
    return DataSet(documents, read_pair_lists(paths, read_rows, Counter(), progress))
