"""Corpora: a folder of files, a file, JSON Lines or a BEIR folder, one document at a time."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from index.corpus.file_reader import FileReader
from index.corpus.formats.extra import EXTRA_SUFFIXES
from index.corpus.formats.files import FILE_SUFFIXES, readable_suffixes
from index.corpus.json_lines import Line, parse_document, read_lines
from index.corpus.parquet import PARQUET_SUFFIX, count_rows, read_rows
from index.corpus.records import document_of_row
from index.corpus.remote import RemoteFile
from index.corpus.sql import SqlQuery, check_query, count_query, read_query
from index.document import Document, SkippedInput, printable
from index.errors import CorpusError, DocumentError
from index.optional_dependencies import require_extra

if TYPE_CHECKING:
    from index.corpus.folder_files import FolderFiles

JSON_LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
BEIR_CORPUS_NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of files, or a part of it.

    Attributes:
        path: of the folder, or of a file in its place.
        follow_links: symbolic links are followed, wherever they lead.
        names: of the files in it, and of folders in it, that are the part; None for all.
    """

    path: Path
    follow_links: bool = False
    names: Set[str] | None = None

    def __str__(self) -> str:
        return str(self.path)


Corpus = Path | Folder | SqlQuery | RemoteFile


def read_corpus(
    corpus: Corpus, known: "FolderFiles | None" = None
) -> Iterator[Document | SkippedInput]:
    """Read the documents of a corpus in a fixed order, holding one of them at a time.

    * A folder with `corpus.jsonl` or `corpus.jsonl.gz` (BEIR) is that file.
    * Any other folder gives one document for each file of a known kind in it, at any depth
      (`index.corpus.reader`). The id is the path within the folder, with `/`.
    * A JSON Lines file gives one document a line (`index.corpus.json_lines`). A repeated
      id is skipped and reported, so all ids are kept in memory.
    * A Parquet file or a query to a database gives one document a row, with the same fields.
    * One file of a known kind is a corpus of one document, under the file's name.
    * All of these but a query also in another place, such as S3 (`index.corpus.remote`).

    Of files that are `known` it gives the remarks alone.
    """
    found = _find(corpus)
    return found.read(known) if isinstance(found, _Files) else found.read()


def count_documents(corpus: Corpus) -> int:
    """Count what `read_corpus` yields, including empty lines, without reading documents."""
    return _find(corpus).count()


def file_names(corpus: Corpus) -> Iterator[str]:
    """Yield the ids of the files of a folder; none of a corpus of another kind."""
    found = _find(corpus)
    named = found.named() if isinstance(found, _Files) else ()
    return (found[0] for found in named if not isinstance(found, SkippedInput))


def _find(corpus: Corpus) -> "_Files | _Rows":
    if isinstance(corpus, SqlQuery):
        check_query(corpus)
        rows, count = partial(read_query, corpus), partial(count_query, corpus)
        return _Rows(printable(str(corpus)), rows, count)
    if isinstance(corpus, RemoteFile):
        return _find_remote(corpus)
    folder = corpus if isinstance(corpus, Folder) else Folder(corpus)
    path = folder.path
    try:
        if path.is_dir():
            _children(path)  # raises here, not later, where the folder cannot be read
            beir = None if folder.names else _beir_corpus(folder)
            return _find_file(beir) if beir else _Files(partial(_files_in, folder))
        if not path.exists():
            raise CorpusError(f"{path}: there is no such file or folder")
        if not path.is_file():  # opening a pipe would wait for a writer indefinitely
            raise CorpusError(f"{path}: is neither a file nor a folder")
        with path.open("rb"):
            pass
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    return _find_file(path)


def _find_remote(corpus: RemoteFile) -> "_Files | _Rows":
    if not corpus.is_folder():
        return _find_file(corpus)
    suffixes = readable_suffixes()
    files = corpus.files_below((*suffixes, *BEIR_CORPUS_NAMES))
    beir = next((files[name] for name in BEIR_CORPUS_NAMES if name in files), None)
    documents = [(name, file) for name, file in files.items() if name.lower().endswith(suffixes)]
    return _find_file(beir) if beir else _Files(lambda: documents)


def _find_file(path: Path | RemoteFile) -> "_Files | _Rows":
    name, lower = printable(path.name), path.name.lower()
    if lower.endswith(JSON_LINES_SUFFIXES):
        return _Rows(name, partial(read_lines, path), lambda: sum(1 for _ in read_lines(path)))
    if lower.endswith(PARQUET_SUFFIX):
        require_extra("parquet", "Parquet", "pyarrow")
        return _Rows(name, partial(read_rows, path), partial(count_rows, path))
    require_suffix(path, (*FILE_SUFFIXES, *JSON_LINES_SUFFIXES, PARQUET_SUFFIX))
    return _Files(lambda: [(path.name, path)])


def read_document(path: Path) -> Document:
    """Read one file of a known kind as a document under the file's name, without metadata.

    Raises:
        CorpusError: the file is missing, of an unknown kind, damaged, encrypted or not UTF-8, or
            takes more time or memory than a file may.
    """
    require_suffix(path)
    try:
        with FileReader() as reader:
            content = reader.read(path)
    except CorpusError as error:
        raise CorpusError(f"{path}: {error}") from error
    return Document(path.name, content.text, content.title)


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


def require_suffix(path: Path | RemoteFile, suffixes: Sequence[str] = FILE_SUFFIXES) -> None:
    """Check that a file is of one of these kinds, or of one of the extra, which must be there.

    Raises:
        CorpusError: it is of another kind.
        MissingExtraError: names the extra.
    """
    name = path.name.lower()
    if name.endswith(EXTRA_SUFFIXES):
        require_extra("formats", f"reading .{name.rpartition('.')[2]}", "kreuzberg")
    elif not name.endswith(tuple(suffixes)):
        known = " ".join((*suffixes, *EXTRA_SUFFIXES))
        raise CorpusError(f"{path}: is not of a known kind ({known})")


@dataclass(frozen=True, slots=True)
class _Files:
    """Files, each a document; `named` lists them with their ids, and what cannot be listed."""

    named: Callable[[], Iterable[tuple[str, Path | RemoteFile] | SkippedInput]]

    def read(self, known: "FolderFiles | None" = None) -> Iterator[Document | SkippedInput]:
        with FileReader() as reader:
            for found in self.named():
                if isinstance(found, SkippedInput):
                    yield found
                    continue
                read = partial(_read_file, reader, *found)
                yield from known.read(found[0], read) if known else read()

    def count(self) -> int:
        return sum(1 for _ in self.named())


def _read_file(
    reader: FileReader, name: str, file: Path | RemoteFile
) -> list[Document | SkippedInput]:
    """Return the document of a file and what is said of it, or why it has none."""
    at = printable(name)
    try:
        with file.copied() if isinstance(file, RemoteFile) else nullcontext(file) as path:
            content = reader.read(path)
        language = _language_of(content.text)
        metadata = {**content.metadata, **({"language": language} if language else {})}
        document = Document(name, content.text, content.title, metadata)
    except (CorpusError, DocumentError) as error:
        return [SkippedInput(at, str(error))]
    remarks = [SkippedInput(at, remark, lost=False) for remark in content.remarks]
    return [document, *remarks, *(SkippedInput(at, part) for part in content.skipped)]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Lines of JSON or rows of a table, each a document.

    Attributes:
        name: of the file or the database.
        rows: read them, each a `Line` or what `document_of_row` takes.
        count: them.
    """

    name: str
    rows: Callable[[], Iterable[Any]]
    count: Callable[[], int]

    def read(self) -> Iterator[Document | SkippedInput]:
        first_numbers: dict[str, int] = {}
        for number, row in enumerate(self.rows(), start=1):
            is_line = isinstance(row, Line)
            if is_line and not (row.fault or row.text.strip()):
                continue
            where = f"{self.name}:{number}" if is_line else f"{self.name}: row {number}"
            try:
                document = parse_document(row) if is_line else document_of_row(row)
            except (CorpusError, DocumentError) as error:
                yield SkippedInput(where, str(error))
                continue
            first = first_numbers.setdefault(document.id, number)
            if first != number:
                at = "on line" if is_line else "in row"
                reason = f"the id {document.id!r} already occurs {at} {first}"
                yield SkippedInput(where, reason)
                continue
            yield document


_LEAST_CHARACTERS = 200  # of a text whose language is recognised
_EXAMINED = 20_000  # characters of it


def _language_of(text: str) -> str:
    """Return the language of a text by its code of ISO 639-1; "" for a short text."""
    sample = text[:_EXAMINED]
    if sum(map(str.isalpha, sample)) < _LEAST_CHARACTERS:
        return ""
    # Imported here: its model takes half a second to load.
    import py3langid

    return str(py3langid.classify(sample)[0])


def _beir_corpus(folder: Folder) -> Path | None:
    paths = (folder.path / name for name in BEIR_CORPUS_NAMES)
    found = next((path for path in paths if path.is_file()), None)
    if found and not folder.follow_links and leads_out(found, real_path(folder.path)):
        raise CorpusError(f"{found}: {LINK_OUT}")
    return found


LINK_OUT = "is a link out of the corpus (`longmatch index --follow-links` follows it)"


def _files_in(folder: Folder) -> Iterator[tuple[str, Path | RemoteFile] | SkippedInput]:
    """Yield the files of readable kinds with their names, relative to the folder and with `/`.

    All of them, and at the end which files of other kinds there are; or those of a part.

    Hidden files and folders, and links to folders that are read anyway are ignored. A folder that
    cannot be read is reported; a symbolic link that leads out of the folder is reported, too,
    unless such links are followed.
    """
    suffixes = readable_suffixes()
    root, real_root = folder.path, real_path(folder.path)
    seen, unread = {real_root}, dict[str, tuple[int, str]]()
    # A stack, not recursion: a folder can be nested deeper than Python calls can.
    stack = [_children(root) if folder.names is None else _part(root, folder.names)]
    while stack:
        path = next(stack[-1], None)
        if path is None:
            stack.pop()
            continue
        name = path.relative_to(root).as_posix()
        known = path.name.lower().endswith(suffixes)
        try:
            is_folder = path.is_dir()
            if (is_folder or known) and not folder.follow_links and leads_out(path, real_root):
                yield SkippedInput(printable(name), LINK_OUT)
            elif is_folder:
                real = real_path(path)
                read_elsewhere = path.is_symlink() and real.is_relative_to(real_root)
                if not read_elsewhere and real not in seen:
                    seen.add(real)
                    stack.append(_children(path))
            elif known:
                yield name, path
            else:
                count, first = unread.get(path.suffix.lower(), (0, name))
                unread[path.suffix.lower()] = (count + 1, first)
        except OSError as error:
            yield SkippedInput(printable(name), f"cannot be read: {error.strerror}")
    for suffix, (count, first) in sorted(unread.items() if folder.names is None else ()):
        yield _unread_remark(suffix, count, first)


def _unread_remark(suffix: str, count: int, first: str) -> SkippedInput:
    """Say how many files of a suffix no reader takes, and which is the first."""
    files = f"{count} files" if count > 1 else "a file"
    hint = ""
    if suffix in EXTRA_SUFFIXES:
        hint = "; pip install 'longmatch[formats]' reads them"
    elif f"x{suffix}".endswith((*JSON_LINES_SUFFIXES, PARQUET_SUFFIX)):
        hint = f"; a corpus of its own: longmatch index {first}"
    kind = f"that no reader takes: {first}" + (", …" if count > 1 else "")
    where = printable(f"*{suffix}" if suffix else "no suffix")
    return SkippedInput(where, printable(f"{files} {kind}{hint}"), lost=False)


def leads_out(path: Path, real_root: Path) -> bool:
    """Return whether a path is a symbolic link that leads out of a folder."""
    return path.is_symlink() and not real_path(path).is_relative_to(real_root)


def real_path(path: Path) -> Path:
    """Return a path without symbolic links, also where they lead nowhere or in a circle."""
    return Path(os.path.realpath(path))


def _children(folder: Path) -> Iterator[Path]:
    """Return what is in a folder and not hidden, sorted."""
    # Names, not paths, are kept for a large folder: a tenth of the memory.
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return (folder / name for name in names)


def _part(root: Path, names: Set[str]) -> Iterator[Path]:
    """Yield what is to be listed of a part; not what is gone, or lies behind a link."""
    for name in sorted(names):
        path, parents = root / name, PurePosixPath(name).parents
        if (
            names.isdisjoint(map(str, parents))  # else it is listed with a folder above it
            and os.path.lexists(path)
            and real_path(path.parent) == real_path(root) / parents[0]
        ):
            yield path
