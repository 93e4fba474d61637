"""Tables of pairs: of each row a label, and columns of two documents.

CSV of label, text and text is the form in which Zhou et al. distribute AAN-Abs, OC, S2ORC and PAN
(EMNLP 2020), where Match-Ignition takes them from. CNSE and CNSS are pairs of Chinese news articles
(Liu et al., ACL 2019) with `|` between columns. Lists of AAN are in `training.datasets.citations`.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.judgements import Pair
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet
from training.datasets.dataset import Shares, divide, make_document, without_missing
from training.datasets.lines import files_below, one_file_a_part, require_files

NEWS_SHARES: Shares = (0.6, 0.2, 0.2)  # section 4.1 of Match-Ignition
_LARGEST = 16 * 2**20  # characters of a column; the csv module allows 131,072, less than a book
_MARK = "\x01"  # of sentences that cite or copy the other text, in the CSV of Zhou et al.


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is written.

    Attributes:
        fields: of a document, of "id", "title" and "text". After the label come two columns of
            each: of the first and of the second document.
        delimiter: between columns.
        quoted: whether columns may be quoted.
        more: whether more columns may follow, which are not read.
    """

    fields: tuple[str, ...]
    delimiter: str
    quoted: bool = True
    more: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that are read."""
        return ("label", *(field for field in self.fields for _ in range(2)))


TEXTS = Layout(("text",), ",")
NEWS = Layout(("id", "title", "text"), "|", quoted=False, more=True)


def read_text_pairs(source: Path, progress: Progress) -> DataSet:
    """Read pairs of texts in CSV; equal texts are one document, whose id is a hash of it."""
    documents: dict[str, Document] = {}
    left_out: Counter[str] = Counter()
    paths = require_files(files_below(source, "*.csv"), source, "list of pairs *.csv")
    parts = one_file_a_part(paths, source)
    pairs = read_pair_tables(parts, TEXTS, documents, left_out, progress)
    return DataSet(documents.values(), pairs, left_out=left_out)


def read_news(source: Path, progress: Progress) -> DataSet:
    """Read pairs of news articles: a file, or the only `*doc_pair*.txt` of a folder."""
    found = sorted(source.glob("*doc_pair*.txt")) if source.is_dir() else [source]
    if len(found) != 1:
        raise CorpusError(
            f"{source}: has {len(found)} files *doc_pair*.txt, not one: name the file of pairs"
        )
    if not found[0].is_file():
        raise CorpusError(f"{source}: there is no such file or folder")
    documents: dict[str, Document] = {}
    left_out: Counter[str] = Counter()
    tables = read_pair_tables({"all": found[0]}, NEWS, documents, left_out, progress)
    pairs = without_missing(divide(tables["all"], NEWS_SHARES), documents, left_out)
    return DataSet(documents.values(), pairs, left_out=left_out)


def read_pair_tables(
    paths: Mapping[str, Path],
    layout: Layout,
    documents: dict[str, Document],
    left_out: Counter[str],
    progress: Progress,
) -> dict[str, list[Pair]]:
    """Read the table of each part; of two labels for one pair the second is an error.

    A pair that an earlier row or part has is left out and counted, and so is a document that is
    paired with itself.

    Args:
        paths: of each part.
        documents: to which those whose texts a table has are added, by their ids.
    """
    listed: dict[str, list[Pair]] = {}
    known: dict[tuple[str, str], Pair] = {}
    progress.started("reading pairs", None, unit="pairs")
    for part, path in paths.items():
        listed[part] = []
        for where, (label, *columns) in read_rows(path, layout):
            progress.advanced(1)
            first, second = (
                _add(documents, where, dict(zip(layout.fields, columns[side::2], strict=False)))
                for side in (0, 1)
            )
            if (label := label.removesuffix(".0")) not in ("0", "1"):
                raise CorpusError(f"{where}: the label is {label[:20]!r}, not 0 or 1")
            pair = Pair(first, second, label == "1", where)
            before = known.setdefault(pair.ends, pair)
            if first == second:
                left_out["pairs of a text with itself"] += 1
            elif before.label != pair.label:
                raise CorpusError(
                    f"{where}: {first!r} and {second!r} have another label at {before.where}"
                )
            elif before is not pair:
                left_out["pairs that are there before"] += 1
            else:
                listed[part].append(pair)
        if not listed[part]:
            raise CorpusError(f"{path}: holds no pair")
    return listed


def read_rows(path: Path, layout: Layout) -> Iterator[tuple[str, list[str]]]:
    """Read the columns of each row, stripped, with the `file:line` at which it ends.

    A first row whose first column is "label" is skipped.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST))
    names, width = layout.columns, 0
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(
            stream,
            delimiter=layout.delimiter,
            quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
            strict=True,
        )
        try:
            for row in filter(None, rows):
                columns = [column.replace(_MARK, "").strip() for column in row]
                where, width = f"{path}:{rows.line_num}", width or len(columns)
                if len(columns) < len(names) or (len(columns) > len(names) and not layout.more):
                    raise CorpusError(
                        f"{where}: has {len(columns)} columns, not {', '.join(names)}"
                    )
                if len(columns) != width:
                    raise CorpusError(
                        f"{where}: has {len(columns)} columns, and the first row has {width}"
                    )
                if rows.line_num > 1 or columns[0].lower() != names[0]:
                    yield where, columns
        except csv.Error as error:
            raise CorpusError(f"{path}:{rows.line_num}: is not CSV: {error}") from error
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}: is not UTF-8 after line {rows.line_num}") from error


def _add(documents: dict[str, Document], where: str, given: Mapping[str, str]) -> str:
    """Add a document of a row, if it has a text, and return its id in the corpus.

    Without an id it is a hash of the text. An id that occurs with another text is another
    document, `id~2`.
    """
    name, text = given.get("id"), given.get("text", "")
    if name is not None and not text:
        return name
    document = make_document(where, given.get("id", "text"), text, given.get("title", ""))
    if name is None:
        name = document.content_hash.hex()[:16]
        document = replace(document, id=name)
    number = 1
    while documents.setdefault(document.id, document).text != document.text:
        number += 1
        document = replace(document, id=f"{name}~{number}")
    return document.id
