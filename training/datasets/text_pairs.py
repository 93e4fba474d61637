"""Pairs of texts in CSV: label, text, text.

The form in which Zhou et al. distribute AAN-Abs, OC, S2ORC and PAN (EMNLP 2020), where
Match-Ignition takes them from. U+0001 marks the sentences that cite or copy the other text; the
marks are no part of the text.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from index.document import Document
from index.progress import Progress
from training.data.corpus_folder import DataSet, LabelledIds
from training.datasets.dataset import make_document, read_pair_lists
from training.datasets.lines import files_of_parts, read_csv, read_label

COLUMNS = ("label", "source", "target")
_MARK = "\x01"


def read_text_pairs(source: Path, progress: Progress) -> DataSet:
    """Read pairs of texts; equal texts are one document, whose id is a hash of it."""
    paths = files_of_parts(source, "list of pairs *.csv", "*.csv")
    documents: dict[str, Document] = {}

    def read_rows(path: Path) -> Iterator[tuple[str, LabelledIds]]:
        for where, (label, *texts) in read_csv(path, COLUMNS):
            first, second = (_to_document(text, where) for text in texts)
            documents.update({first.id: first, second.id: second})
            yield where, LabelledIds(first.id, second.id, read_label(label.strip(), where))

    left_out: Counter[str] = Counter()
    pairs = read_pair_lists(paths, read_rows, left_out, progress)
    return DataSet(documents.values(), pairs, left_out=left_out)


def _to_document(text: str, where: str) -> Document:
    text = text.replace(_MARK, "").strip()
    unnamed = make_document(where, "text", text)
    return make_document(where, unnamed.content_hash.hex()[:16], text)
