"""Corpora: a folder of files, a file, JSON Lines or a BEIR folder, one document at a time."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from index.corpus.file_reader import FileReader
from index.corpus.formats.content import FileText
from index.corpus.formats.extra import EXTRA_SUFFIXES
from index.corpus.formats.files import FILE_SUFFIXES, readable_suffixes
from index.corpus.formats.parquet import PARQUET_SUFFIX
from index.corpus.json_lines import BadLine, count_lines, parse_document, read_lines
from index.corpus.records import document_of
from index.corpus.remote import (
    RemoteFile,
    RemotePath,
    is_folder,
    open_remote,
    remote_files_below,
)
from index.corpus.sql import SqlQuery, check_query, count_query, read_query
from index.document import Document, SkippedInput, printable
from index.errors import CorpusError, DocumentError
from index.optional_dependencies import require_extra

if TYPE_CHECKING:
    from index.corpus.folder_files import FolderFiles

JSON_LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
BEIR_CORPUS_NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


@dataclass(frozen=True, slots=True)
class FollowedFolder:
    """A folder whose symbolic links are followed, wherever they lead."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


WHOLE = "."  # in place of a name: all files of the folder


@dataclass(frozen=True, slots=True)
class FolderPart:
    """Files of a folder: with these names in it, or below folders with these names."""

    path: Path
    names: Set[str] = frozenset({WHOLE})

    def __str__(self) -> str:
        return str(self.path)

    def files(self) -> Iterator[tuple[str, Path | RemoteFile] | SkippedInput]:
        """List them, and what cannot be listed."""
        if WHOLE in self.names:
            yield from _files_in(self.path, follow_links=False)
            return
        root = real_path(self.path)
        for name in sorted(self.names):
            path, parents = self.path / name, PurePosixPath(name).parents
            # Else it is listed with a folder above it, is gone, or lies behind a link.
            if (
                self.names.isdisjoint(map(str, parents))
                and os.path.lexists(path)
                and real_path(path.parent) == root / parents[0]
            ):
                yield from _files_in(self.path, follow_links=False, begin=[path])


Corpus = Path | FollowedFolder | FolderPart | SqlQuery | RemotePath


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
    return found.names() if isinstance(found, _Files) else iter(())


def _find(corpus: Corpus) -> "_Files | _Rows":
    if isinstance(corpus, SqlQuery):
        check_query(corpus)
        rows = partial(_query_rows, corpus)
        return _Rows(
            f"{printable(str(corpus))}: row ", "in row", rows, partial(count_query, corpus)
        )
    if isinstance(corpus, RemotePath):
        return _find_remote(corpus)
    if isinstance(corpus, FolderPart):
        return _Files(corpus.files)
    follow_links = isinstance(corpus, FollowedFolder)
    path = corpus.path if isinstance(corpus, FollowedFolder) else corpus
    try:
        if path.is_dir():
            names_in(path)  # raises here, not later, where the folder cannot be read
            beir = _beir_corpus(path, follow_links=follow_links)
            files = partial(_files_in, path, follow_links=follow_links)
            return _find_file(beir) if beir else _Files(files)
        _require_readable_file(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    return _find_file(path)


def _find_remote(corpus: RemotePath) -> "_Files | _Rows":
    found = open_remote(corpus)
    if not is_folder(found):
        return _find_file(found)
    suffixes = readable_suffixes()
    files = remote_files_below(found, (*suffixes, *BEIR_CORPUS_NAMES))
    named = dict(files)
    beir = next((named[name] for name in BEIR_CORPUS_NAMES if name in named), None)
    documents = [(name, file) for name, file in files if name.lower().endswith(suffixes)]
    return _find_file(beir) if beir else _Files(lambda: documents)


def _find_file(path: Path | RemoteFile) -> "_Files | _Rows":
    name, lower = printable(path.name), path.name.lower()
    if lower.endswith(JSON_LINES_SUFFIXES):
        lines = partial(_line_documents, path)
        return _Rows(f"{name}:", "on line", lines, partial(count_lines, path))
    if lower.endswith(PARQUET_SUFFIX):
        require_extra("parquet", "Parquet", "pyarrow")
        rows, count = partial(_parquet_rows, path), partial(_count_parquet_rows, path)
        return _Rows(f"{name}: row ", "in row", rows, count)
    require_suffix(path, (*FILE_SUFFIXES, *JSON_LINES_SUFFIXES, PARQUET_SUFFIX))
    return _Files(lambda: [(path.name, path)])


def read_document(path: Path) -> Document:
    """Read one file of a known kind as a document under the file's name.

    Raises:
        CorpusError: the file is missing, of an unknown kind, damaged, encrypted or not UTF-8, or
            takes more time or memory than a file may.
    """
    try:
        _require_readable_file(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error
    require_suffix(path)
    with FileReader() as reader, _named(path):
        return _document(reader.read(path), path.name)


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
                name, file = found
                at = printable(name)
                if known and isinstance(file, Path):
                    before = known.remarks(name, file)
                    if before is not None:
                        yield from before
                        continue
                try:
                    with _on_disk(file) as path:
                        content = reader.read(path)
                    document = _document(content, name, _language_of(content.text))
                except (CorpusError, DocumentError) as error:
                    yield SkippedInput(at, str(error))
                    continue
                remarks = [SkippedInput(at, remark, lost=False) for remark in content.remarks]
                remarks += [SkippedInput(at, part) for part in content.skipped]
                if known:
                    known.add(document, remarks)
                yield document
                yield from remarks

    def count(self) -> int:
        return sum(1 for _ in self.named())

    def names(self) -> Iterator[str]:
        return (found[0] for found in self.named() if not isinstance(found, SkippedInput))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Numbered lines or rows, each a document.

    Attributes:
        where: what stands before a number, to say where one is.
        at: the same within the place.
        rows: read them, a document, a record, or why it is neither.
        count: them.
    """

    where: str
    at: str
    rows: Callable[[], Iterator[tuple[int, Document | dict[str, Any] | str]]]
    count: Callable[[], int]

    def read(self) -> Iterator[Document | SkippedInput]:
        first_numbers: dict[str, int] = {}
        for number, row in self.rows():
            where = f"{self.where}{number}"
            if isinstance(row, str):
                yield SkippedInput(where, row)
                continue
            try:
                document = row if isinstance(row, Document) else document_of(row)
            except DocumentError as error:
                yield SkippedInput(where, str(error))
                continue
            first = first_numbers.setdefault(document.id, number)
            if first != number:
                reason = f"the id {document.id!r} already occurs {self.at} {first}"
                yield SkippedInput(where, reason)
                continue
            yield document


def _line_documents(path: Path | RemoteFile) -> Iterator[tuple[int, Document | str]]:
    for line in read_lines(path):
        if isinstance(line, BadLine):
            yield line.number, line.reason
        elif line.text.strip():
            try:
                yield line.number, parse_document(line.text)
            except (CorpusError, DocumentError) as error:
                yield line.number, str(error)


def _parquet_rows(path: Path | RemoteFile) -> Iterator[tuple[int, dict[str, Any] | str]]:
    number = 0
    with FileReader() as reader, _on_disk(path) as copy:
        try:
            for number, row in enumerate(reader.read_rows(copy), start=1):
                yield number, row
        except CorpusError as error:
            if not number:
                raise CorpusError(f"{path}: {error}") from error
            yield number + 1, str(error)  # of the rows before, documents have been made


def _count_parquet_rows(path: Path | RemoteFile) -> int:
    with FileReader() as reader, _named(path), _on_disk(path) as copy:
        return reader.count_rows(copy)


def _query_rows(corpus: SqlQuery) -> Iterator[tuple[int, dict[str, Any] | str]]:
    return enumerate(read_query(corpus), start=1)


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


def _document(content: FileText, document_id: str, language: str = "") -> Document:
    metadata = {**content.metadata, **({"language": language} if language else {})}
    return Document(id=document_id, text=content.text, title=content.title, metadata=metadata)


def _on_disk(path: Path | RemoteFile) -> AbstractContextManager[Path]:
    return path.copied() if isinstance(path, RemoteFile) else nullcontext(path)


@contextmanager
def _named(path: Path | RemoteFile) -> Iterator[None]:
    """Name a file in the errors of a block."""
    try:
        yield
    except CorpusError as error:
        raise CorpusError(f"{path}: {error}") from error


def _beir_corpus(folder: Path, *, follow_links: bool) -> Path | None:
    paths = (folder / name for name in BEIR_CORPUS_NAMES)
    found = next((path for path in paths if path.is_file()), None)
    if found and not follow_links and leads_out(found, real_path(folder)):
        raise CorpusError(f"{found}: {LINK_OUT}")
    return found


LINK_OUT = "is a link out of the corpus (`longmatch index --follow-links` follows it)"


def _files_in(
    root: Path, *, follow_links: bool, begin: Sequence[Path] = ()
) -> Iterator[tuple[str, Path | RemoteFile] | SkippedInput]:
    """Yield the files of readable kinds with their names, relative to `root` and with `/`.

    All of them, and at the end which files of other kinds there are; or what is at or below the
    paths to begin with.

    Hidden files and folders, and links to folders that are read anyway are ignored. A folder that
    cannot be read is reported; a symbolic link that leads out of `root` is reported, too, unless
    such links are followed.
    """
    suffixes = readable_suffixes()
    real_root = real_path(root)
    seen, unread = {real_root}, dict[str, tuple[int, str]]()
    # A stack, not recursion: a folder can be nested deeper than Python calls can.
    stack = [iter(begin) if begin else _children(root)]
    while stack:
        path = next(stack[-1], None)
        if path is None:
            stack.pop()
            continue
        name = path.relative_to(root).as_posix()
        known = path.name.lower().endswith(suffixes)
        try:
            folder = path.is_dir()
            if (folder or known) and not follow_links and leads_out(path, real_root):
                yield SkippedInput(printable(name), LINK_OUT)
            elif folder:
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
    for suffix, (count, first) in sorted(unread.items() if not begin else ()):
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


def names_in(folder: Path) -> list[str]:
    """Return the sorted names of a folder that are not hidden."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def _children(folder: Path) -> Iterator[Path]:
    # Names, not paths, are kept for a large folder: a tenth of the memory.
    names = names_in(folder)
    return (folder / name for name in names)
