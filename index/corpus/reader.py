"""Corpora: a folder of files, a file, JSON Lines or a BEIR folder, one document at a time."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from index.corpus.file_reader import FileReader
from index.corpus.formats.files import FILE_SUFFIXES
from index.corpus.json_lines import BadLine, count_lines, parse_document, read_lines
from index.document import Document, SkippedInput
from index.errors import CorpusError, DocumentError

JSON_LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
BEIR_CORPUS_NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


def read_corpus(path: Path) -> Iterator[Document | SkippedInput]:
    """Read the documents of a corpus in a fixed order, holding one of them at a time.

    * A folder with `corpus.jsonl` or `corpus.jsonl.gz` (BEIR) is that file.
    * Any other folder gives one document for each file of a known kind in it, at any depth. The id
      is the path within the folder, with `/`. Hidden files and folders, files of other kinds and
      links to folders that are read anyway are ignored.
    * A JSON Lines file gives one document a line (`index.corpus.json_lines`). A repeated
      id is skipped and reported, so all ids are kept in memory.
    * One file of a known kind is a corpus of one document, under the file's name.

    Raises:
        CorpusError: at the call, when nothing at `path` can be read as a corpus.
    """
    try:
        if path.is_dir():
            return _read_folder(path)
        _require_readable_file(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    if path.name.lower().endswith(JSON_LINES_SUFFIXES):
        return _read_json_lines(path)
    _require_known_kind(path, (*FILE_SUFFIXES, *JSON_LINES_SUFFIXES))
    return _read_files(path.parent, [path.name])


def count_documents(path: Path) -> int:
    """Count what `read_corpus` yields, including empty lines, without reading documents.

    Raises:
        CorpusError: nothing at `path` can be read as a corpus.
    """
    try:
        if path.is_dir():
            beir = _beir_corpus(path)
            return sum(1 for _ in _files(path)) if beir is None else count_lines(beir)
        _require_readable_file(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    return count_lines(path) if path.name.lower().endswith(JSON_LINES_SUFFIXES) else 1


def read_document(path: Path) -> Document:
    """Read one file of a known kind as a document under the file's name.

    Raises:
        CorpusError: the file is missing, of an unknown kind, damaged, encrypted or not UTF-8, or
            takes more time or memory than a file may.
        DocumentError: it holds no text, or its name cannot be an id.
    """
    try:
        _require_readable_file(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    _require_known_kind(path, FILE_SUFFIXES)
    try:
        with FileReader() as reader:
            return _read_file(reader, path, path.name)
    except CorpusError as error:
        raise CorpusError(f"{path}: {error}") from error


def read_documents(corpus: Path, ids: Sequence[str]) -> list[Document]:
    """Read these documents, in the order of the ids.

    Raises:
        CorpusError: the corpus cannot be read, or has no document of such an id.
    """
    found = {item.id: item for item in read_corpus(corpus) if isinstance(item, Document)}
    missing = [document_id for document_id in ids if document_id not in found]
    if missing:
        raise CorpusError(f"{corpus}: has no document {missing[0]!r}, for which there is a vector")
    return [found[document_id] for document_id in ids]


def _require_readable_file(path: Path) -> None:
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file or folder")
    if not path.is_file():  # opening a pipe would wait for a writer indefinitely
        raise CorpusError(f"{path}: is neither a file nor a folder")
    with path.open("rb"):
        pass


def _require_known_kind(path: Path, suffixes: Sequence[str]) -> None:
    if not path.name.lower().endswith(tuple(suffixes)):
        raise CorpusError(f"{path}: is not of a known kind ({' '.join(suffixes)})")


def _read_file(reader: FileReader, path: Path, document_id: str) -> Document:
    content = reader.read(path)
    return Document(id=document_id, text=content.text, title=content.title)


def _read_files(
    folder: Path, names: Iterable[str | SkippedInput]
) -> Iterator[Document | SkippedInput]:
    with FileReader() as reader:
        for name in names:
            if isinstance(name, SkippedInput):
                yield name
                continue
            try:
                item: Document | SkippedInput = _read_file(reader, folder / name, name)
            except (CorpusError, DocumentError) as error:
                item = SkippedInput(_printable(name), str(error))
            yield item


def _read_json_lines(path: Path) -> Iterator[Document | SkippedInput]:
    first_lines: dict[str, int] = {}
    for line in read_lines(path):
        where = f"{_printable(path.name)}:{line.number}"
        if isinstance(line, BadLine):
            yield SkippedInput(where, line.reason)
            continue
        if not line.text.strip():
            continue
        try:
            document = parse_document(line.text)
        except (CorpusError, DocumentError) as error:
            yield SkippedInput(where, str(error))
            continue
        first = first_lines.setdefault(document.id, line.number)
        if first != line.number:
            yield SkippedInput(where, f"the id {document.id!r} already occurs on line {first}")
            continue
        yield document


def _read_folder(folder: Path) -> Iterator[Document | SkippedInput]:
    beir = _beir_corpus(folder)
    if beir is not None:
        return _read_json_lines(beir)
    _names(folder)  # raises here, not later, where the folder cannot be read
    return _read_files(folder, _files(folder))


def _beir_corpus(folder: Path) -> Path | None:
    return next((folder / name for name in BEIR_CORPUS_NAMES if (folder / name).is_file()), None)


def _files(root: Path) -> Iterator[str | SkippedInput]:
    """Yield the names, relative to `root`, of the files of a known kind at any depth."""
    real_root = root.resolve()
    seen = {real_root}
    # A stack, not recursion: a folder can be nested deeper than Python calls can.
    stack = [_children(root)]
    while stack:
        path = next(stack[-1], None)
        if path is None:
            stack.pop()
            continue
        name = path.relative_to(root).as_posix()
        try:
            if path.is_dir():
                real = path.resolve()
                read_elsewhere = path.is_symlink() and real.is_relative_to(real_root)
                if not read_elsewhere and real not in seen:
                    seen.add(real)
                    stack.append(_children(path))
            elif path.suffix.lower() in FILE_SUFFIXES:
                yield name
        except OSError as error:
            yield SkippedInput(_printable(name), f"cannot be read: {error.strerror}")


def _children(folder: Path) -> Iterator[Path]:
    # Names, not paths, are kept for a large folder: a tenth of the memory.
    names = _names(folder)
    return (folder / name for name in names)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in name)
