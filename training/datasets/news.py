"""CNSE and CNSS: pairs of Chinese news articles (Liu et al., ACL 2019), `|` between columns."""

from collections.abc import Sequence
from pathlib import Path

from evaluation.judgements import text_lines
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.datasets.dataset import DataSet, LabelledIds, Shares, divide, make_document
from training.datasets.lines import read_label

SHARES: Shares = (0.6, 0.2, 0.2)  # section 4.1 of Match-Ignition
COLUMNS = ("label", "doc_id1", "doc_id2", "title1", "title2", "content1", "content2")


def _find_news(source: Path) -> Path:
    """Return the file of pairs: the source itself, or the only `*doc_pair*.txt` in the folder."""
    if not source.is_dir():
        if not source.is_file():
            raise CorpusError(f"{source}: there is no such file or folder")
        return source
    found = sorted(source.glob("*doc_pair*.txt"))
    if len(found) != 1:
        raise CorpusError(
            f"{source}: has {len(found)} files *doc_pair*.txt, not one: name the file of pairs"
        )
    return found[0]


def read_news(source: Path, progress: Progress) -> DataSet:
    """Read pairs of articles.

    A first line of names is skipped. An article id that occurs with another text is another
    document, `id~2`.
    """
    path = _find_news(source)
    progress.started("reading pairs", None, unit="pairs")
    documents: dict[str, Document] = {}
    pairs: dict[tuple[str, str], LabelledIds] = {}
    width = 0
    for line in text_lines(path):
        where, columns = f"{path}:{line.number}", line.text.split("|")
        width = width or len(columns)
        _check_columns(columns, width, where)
        if line.number == 1 and columns[0].strip() == COLUMNS[0]:
            continue
        progress.advanced(1)
        label = read_label(columns[0].strip(), where)
        a, b = (_add(documents, where, columns[side::2]) for side in (1, 2))
        if a == b:
            raise CorpusError(f"{where}: an article is paired with itself")
        known = pairs.setdefault((min(a, b), max(a, b)), LabelledIds(a, b, label))
        if known.label != label:
            raise CorpusError(f"{where}: {a!r} and {b!r} have another label in an earlier line")
    if not pairs:
        raise CorpusError(f"{path}: holds no pair")
    return DataSet(list(documents.values()), divide(pairs.values(), SHARES))


def _check_columns(columns: Sequence[str], width: int, where: str) -> None:
    if len(columns) < len(COLUMNS):
        raise CorpusError(
            f"{where}: has {len(columns)} columns separated by '|', not at least "
            f"{len(COLUMNS)}: {', '.join(COLUMNS)}"
        )
    if len(columns) != width:
        raise CorpusError(f"{where}: has {len(columns)} columns, and the first line has {width}")


def _add(documents: dict[str, Document], where: str, columns: Sequence[str]) -> str:
    """Add an article of columns id, title, content and others; return its id in the corpus."""
    name, title, text = (column.strip() for column in columns[:3])
    document = make_document(where, name, text, title)
    number = 1
    while documents.setdefault(document.id, document).text != document.text:
        number += 1
        document = make_document(where, f"{name}~{number}", text, title)
    return document.id
