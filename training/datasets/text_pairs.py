"""Pairs of texts in CSV: label, text, text.

The form in which Zhou et al. distribute AAN-Abs, OC, S2ORC and PAN (EMNLP 2020), where
Match-Ignition takes them from. U+0001 marks the sentences that cite or copy the other text; the
marks are no part of the text.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.datasets.dataset import DataSet, LabelledIds, ends, make_document
from training.datasets.lines import files_of_parts, read_csv, read_label

COLUMNS = ("label", "source", "target")
_MARK = "\x01"


def read_text_pairs(source: Path, progress: Progress) -> DataSet:
    """Read pairs of texts; equal texts are one document, whose id is a hash of it.

    A pair that an earlier row or part has is left out and counted, and so is a text that is
    paired with itself.
    """
    paths = files_of_parts(source, "list of pairs *.csv", "*.csv")
    left_out: Counter[str] = Counter()
    labels: dict[tuple[str, str], bool] = {}
    pairs: dict[str, list[LabelledIds]] = {}
    progress.started("reading pairs", None, unit="pairs")
    for part, path in paths.items():
        pairs[part] = []
        for where, label, first, second in _read_rows(path):
            progress.advanced(1)
            pair = LabelledIds(first.id, second.id, label)
            known = labels.get(ends(pair))
            if first.id == second.id:
                left_out["pairs of a text with itself"] += 1
            elif known is None:
                labels[ends(pair)] = label
                pairs[part].append(pair)
            elif known == label:
                left_out["pairs that are there before"] += 1
            else:
                raise CorpusError(f"{where}: both texts have another label in an earlier row")
        if not pairs[part]:
            raise CorpusError(f"{path}: holds no pair")
    return DataSet(_documents(list(paths.values())), pairs, left_out=left_out)


def _documents(paths: list[Path]) -> Iterator[Document]:
    """Read the texts again while they are written, so that memory need not hold them."""
    seen: set[str] = set()
    for path in paths:
        for _, _, *documents in _read_rows(path):
            for document in documents:
                if document.id not in seen:
                    seen.add(document.id)
                    yield document


def _read_rows(path: Path) -> Iterator[tuple[str, bool, Document, Document]]:
    """Yield `file:line` at which a row ends, its label and both texts."""
    for where, (label, *texts) in read_csv(path, COLUMNS):
        first, second = (_to_document(text, where) for text in texts)
        yield where, read_label(label.strip(), where), first, second


def _to_document(text: str, where: str) -> Document:
    text = text.replace(_MARK, "").strip()
    unnamed = make_document(where, "text", text)
    return make_document(where, unnamed.content_hash.hex()[:16], text)
