"""CNSE and CNSS: pairs of Chinese news articles (Liu et al., ACL 2019), `|` between columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluation.judgements import text_lines
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet, LabelledIds
from training.datasets.dataset import Shares, divide, make_document, read_pair_lists
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
    documents: dict[str, Document] = {}

    def read_rows(path: Path) -> Iterator[tuple[str, LabelledIds]]:
        width = 0
        for line in text_lines(path):
            where, columns = f"{path}:{line.number}", line.text.split("|")
            width = width or len(columns)
            _check_columns(columns, width, where)
            if line.number == 1 and columns[0].strip() == COLUMNS[0]:
                continue
            label = read_label(columns[0].strip(), where)
            a, b = (_add(documents, where, columns[side::2]) for side in (1, 2))
            yield where, LabelledIds(a, b, label)

    left_out: Counter[str] = Counter()
    pairs = read_pair_lists({"all": _find_news(source)}, read_rows, left_out, progress)
    return DataSet(documents.values(), divide(pairs["all"], SHARES), left_out=left_out)


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
