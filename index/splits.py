"""Splits of a corpus: which document is for training, which for validation, which for testing."""

from pathlib import Path

from index.errors import CorpusError
from index.lines import BadLine, read_lines

PARTS = ("train", "valid", "test")


def read_splits(path: Path) -> dict[str, str]:
    """Read `document id TAB train|valid|test`, one a line, plain or gzip: id -> part.

    Raises:
        CorpusError: naming file and line: not two columns, another part, a document in two parts;
            or there is no file, or no line in it.
    """
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file")
    splits: dict[str, str] = {}
    for line in read_lines(path):
        where = f"{path}:{line.number}"
        if isinstance(line, BadLine):
            raise CorpusError(f"{where}: {line.reason}")
        if not line.text.strip():
            continue
        columns = [column.strip() for column in line.text.split("\t")]
        if len(columns) != 2 or not columns[0]:
            raise CorpusError(f"{where}: is not a document id, a tab and one of {', '.join(PARTS)}")
        document, part = columns
        if part not in PARTS:
            raise CorpusError(f"{where}: the part {part[:20]!r} is none of {', '.join(PARTS)}")
        if splits.setdefault(document, part) != part:
            raise CorpusError(f"{where}: {document!r} is in {splits[document]} before")
    if not splits:
        raise CorpusError(f"{path}: holds no document")
    return splits
