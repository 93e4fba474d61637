"""The files of a data set and their lines; whatever is wrong names file and line."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluation.judgements import PARTS, read_qrels, text_lines
from index.corpus.json_lines import parse_object
from index.errors import CorpusError
from training.data.files import part_in_name


def require_files(paths: Sequence[Path], source: Path, expected: str) -> Sequence[Path]:
    """Return paths, of which there must be one."""
    if not paths:
        raise CorpusError(f"{source}: there is no {expected}")
    return paths


def files_below(folder: Path, *patterns: str) -> list[Path]:
    """Return the files at any depth whose names match a pattern, in order, without hidden ones."""
    if not folder.is_dir():
        raise CorpusError(f"{folder}: there is no such folder")
    found = {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()}
    return sorted(path for path in found if not path.name.startswith("."))


def read_judgements(
    paths: Sequence[Path], source: Path, expected: str
) -> list[tuple[Path, str, dict[str, int]]]:
    """Return each judged query with its file and its judgements; a query is in one file only."""
    found: dict[str, tuple[Path, str, dict[str, int]]] = {}
    for path in require_files(paths, source, expected):
        for query, judged in read_qrels(path).items():
            first, *_ = found.setdefault(query, (path, query, judged))
            if first != path:
                raise CorpusError(f"{path}: the query {query!r} is judged in {first.name}, too")
    return list(found.values())


def read_objects(paths: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read JSON Lines, each object with the `file:line` it is from."""
    for path in paths:
        for line in text_lines(path):
            where = f"{path}:{line.number}"
            try:
                yield where, parse_object(line.text)
            except CorpusError as error:
                raise CorpusError(f"{where}: {error}") from error


def text_field(record: dict[str, Any], name: str, where: str) -> str:
    """Return a field that is text, or a number where an id is asked for."""
    value = record.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise CorpusError(f"{where}: {name}: is {'not text' if name in record else 'missing'}")
    return value


def part_of_file(path: Path) -> str:
    """Return the part that the name of a file says it is for (`acl_dev.tsv`)."""
    part = part_in_name(path)
    if part is None:
        raise CorpusError(f"{path}: the name says none of train, valid (dev, eval) and test")
    return part


def one_file_a_part(paths: Sequence[Path], source: Path) -> dict[str, Path]:
    """Return the file of each part."""
    found: dict[str, Path] = {}
    for path in paths:
        part = part_of_file(path)
        if part in found:
            raise CorpusError(f"{path}: {found[part].name} is for {part}, too")
        found[part] = path
    for part in PARTS:
        if part not in found:
            raise CorpusError(f"{source}: there is no file of pairs for {part}")
    return {part: found[part] for part in PARTS}


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file with its line ends as they are, which offsets count."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: is not UTF-8 at byte {error.start}") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
