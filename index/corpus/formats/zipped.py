"""DOCX (Office Open XML) and EPUB: XML in zip archives, read in pieces, within limits.

No document type declaration that declares something is accepted, hence no entity is expanded and
nothing outside of the archive is read. A part is parsed as it is decompressed, and neither is ever
held as a whole.
"""

import lzma
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from lxml import etree

from index.corpus.formats.content import (
    MAX_FILE_BYTES,
    MAX_TEXT_CHARACTERS,
    FileText,
    described,
    is_generic,
    plain_title,
)
from index.corpus.formats.html import decode_html, parse_html
from index.corpus.formats.plain import decode_text
from index.errors import CorpusError

MAX_PARTS_BYTES = 4 * MAX_FILE_BYTES  # decompressed, of all parts of an archive that are read
_CHUNK_BYTES = 2**16
_EMPTY_DOCTYPE = re.compile(rb"<!DOCTYPE\s[^\[>]*>")
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError)

T = TypeVar("T", covariant=True)


class Target(Protocol[T]):
    """Takes the elements of a part as they are parsed; names are without their namespace."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        ...

    def end(self, name: str) -> None:
        """An element ends."""
        ...

    def data(self, text: str) -> None:
        """A piece of text within the innermost element."""
        ...

    def close(self) -> T:
        """Return what was found."""
        ...


class Parts:
    """The parts of an open archive; `open_parts` makes it."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._left = MAX_PARTS_BYTES

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def read(self, name: str) -> bytes:
        """Return a part."""
        return b"".join(self._chunks(name))

    def parse(self, name: str, target: Target[T]) -> T:
        """Parse a part of XML, and return what the target makes of it.

        Raises:
            CorpusError: as `read`; or it is not XML, or has a document type declaration that
                declares something.
        """
        plain = _Plain(target, name)
        parser = etree.XMLParser(
            target=plain,
            huge_tree=True,  # nothing is built; without it, depth and length are limited
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
        )
        try:
            for chunk in self._chunks(name):
                plain.declares_nothing |= _EMPTY_DOCTYPE.search(chunk) is not None
                parser.feed(chunk)
            found: T = parser.close()
        except etree.XMLSyntaxError as error:
            raise CorpusError(f"{name}: is not XML: {error.msg}") from error
        return found

    def _chunks(self, name: str) -> Iterator[bytes]:
        if name not in self:
            raise CorpusError(f"has no {name}")
        # Refused by the size that the archive says, before anything is decompressed. A part is
        # never read beyond that size.
        self._left -= self._archive.getinfo(name).file_size
        if self._left < 0:
            raise CorpusError(f"{name}: is larger than {MAX_PARTS_BYTES} bytes when decompressed")
        with self._archive.open(name) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


@contextmanager
def open_parts(path: Path, kind: str) -> Iterator[Parts]:
    """Open an archive.

    Raises:
        CorpusError: it is no archive; or, within the block, is encrypted or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield Parts(archive)
    except _DAMAGED as error:
        raise CorpusError(f"is encrypted or not a readable {kind}: {error}") from error
    except (NotImplementedError, RuntimeError) as error:  # a compression, or a password
        raise CorpusError(f"is not a readable {kind}: {error}") from error


class _Plain:
    """Passes on names without namespaces, and refuses what documents do not need of XML."""

    def __init__(self, target: Target[Any], part: str) -> None:
        self._target = target
        self._part = part
        self.declares_nothing = False
        self.data = target.data
        self.close = target.close

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._target.start(_local(name), {_local(key): attributes[key] for key in attributes})

    def end(self, name: str) -> None:
        self._target.end(_local(name))

    def doctype(self, *_: object) -> None:
        if not self.declares_nothing:
            raise CorpusError(f"{self._part}: has a document type declaration, which is not read")


def _local(name: str) -> str:
    return name.rpartition("}")[2]


_ROOT_RELATIONS = "_rels/.rels"
_PROPERTIES = "docProps/core.xml"
_APPLICATION = "docProps/app.xml"
_NOTES = ("footnotes.xml", "endnotes.xml")
_TITLE_STYLES = ("Title", "Heading1")
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
# The same content again, for readers without the drawings; what a field is made of; settings.
_LEFT_OUT = frozenset(
    {"Fallback", "instrText", "delText", "moveFrom", "pPr", "rPr", "tblPr", "sectPr"}
)


def read_docx(path: Path) -> FileText:
    """Read the text of a document; deleted text of tracked changes is left out.

    The title is that of the properties, else the first paragraph in the style of a title or of a
    heading of the first level, whatever the style is called in the language of the program, else
    the first line. Paragraphs are separated by an empty line,
    table rows by a line break and cells by a tab.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text or too much.
    """
    with open_parts(path, "DOCX") as parts:
        main = parts.parse(_ROOT_RELATIONS, _Relations()).get("officeDocument", "")
        if main not in parts:
            raise CorpusError("is not a readable DOCX: it names no document")
        folder, _, name = main.rpartition("/")
        chunks = _Chunks(parts, folder, name)
        body = _Body(_title_styles(parts, f"{folder}/styles.xml"), chunks.read)
        parts.parse(main, body)
        for name in _NOTES:
            if f"{folder}/{name}" in parts:
                parts.parse(f"{folder}/{name}", body)
        title = _property(parts, _PROPERTIES, "title")
        author = _property(parts, _PROPERTIES, "creator")
        date = _property(parts, _PROPERTIES, "created")
        pages = _property(parts, _APPLICATION, "Pages")
    text = body.close()
    if not text:
        raise CorpusError("has no text")
    return FileText(
        (not is_generic(title) and title) or body.title or plain_title(text),
        text,
        described(author, date, int(pages) if pages.isdecimal() else 0),
        skipped=tuple(chunks.skipped),
    )


def _property(parts: Parts, part: str, name: str) -> str:
    return parts.parse(part, _TextOf(name)).strip() if part in parts else ""


def _title_styles(parts: Parts, name: str) -> frozenset[str]:
    return parts.parse(name, _Styles()) if name in parts else frozenset(_TITLE_STYLES)


_OF_TITLES = {("name", "title"), ("name", "heading 1"), ("outlineLvl", "0")}


class _Styles:
    """Finds the ids of the styles of titles, by their names, which are the same everywhere."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._id = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        value = attributes.get("val", "")
        if name == "style":
            self._id = attributes.get("styleId", "")
        elif (name == "name" and value.lower() in ("title", "heading 1")) or (
            name == "outlineLvl" and value == "0"
        ):
            self._found.add(self._id)

    def end(self, name: str) -> None: ...

    def data(self, text: str) -> None: ...

    def close(self) -> frozenset[str]:
        return frozenset(self._found)


class _Chunks:
    """The parts in other formats that a document includes; those that are not read are reported."""

    def __init__(self, parts: Parts, folder: str, name: str) -> None:
        self._parts, self._folder = parts, folder
        relations = f"{folder}/_rels/{name}.rels"
        self._targets = parts.parse(relations, _Targets()) if relations in parts else {}
        self.skipped: list[str] = []

    def read(self, relation: str) -> str:
        """Return the text of a part by the id of its relation."""
        target = self._targets.get(relation, "")
        name = posixpath.normpath(posixpath.join("/", self._folder, target)).lstrip("/")
        try:
            if name.endswith((".htm", ".html", ".xhtml")):
                return parse_html(decode_html(self._parts.read(name)).text)[1]
            if name.endswith(".txt"):
                return decode_text(self._parts.read(name)).text
            raise CorpusError("is a part of a kind that is not read")
        except CorpusError as error:
            self.skipped.append(f"{name}: {error}")
            return ""


class _TextOf:
    """Finds the text of the first element of a name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: list[str] = []
        self._inside = self._done = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._inside = self._inside or (name == self._name and not self._done)

    def end(self, name: str) -> None:
        if name == self._name:
            self._inside, self._done = False, True

    def data(self, text: str) -> None:
        if self._inside:
            self._found.append(text)

    def close(self) -> str:
        return "".join(self._found)


class _Relations:
    """Finds the parts that a part refers to, by the last word of the kind of relation."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "Relationship":
            kind = attributes.get("Type", "").rpartition("/")[2]
            self._found.setdefault(kind, attributes.get("Target", "").lstrip("/"))

    def end(self, name: str) -> None: ...

    def data(self, text: str) -> None: ...

    def close(self) -> dict[str, str]:
        return self._found


class _Targets(_Relations):
    """Finds the parts that a part refers to, by the id of the relation."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "Relationship":
            self._found[attributes.get("Id", "")] = attributes.get("Target", "")


class _Body:
    """Collects the paragraphs of a document, and after them those of its notes."""

    def __init__(self, title_styles: frozenset[str], chunk: Callable[[str], str]) -> None:
        self.title = ""
        self._title_styles = title_styles
        self._chunk = chunk
        self._reading = 0  # where that of the last base text begins among the pieces
        self._readings: list[str] = []
        self._pieces: list[str] = []
        self._characters = 0
        self._left_out = 0  # depth below the outermost element that is left out
        self._in_text = False
        self._cells = 0  # depth of table cells
        self._paragraph = 0  # where the last one begins among the pieces
        self._is_title = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "pStyle":
            self._is_title = attributes.get("val", "") in self._title_styles
        elif name == "outlineLvl":
            self._is_title = attributes.get("val", "") == "0"
        if self._left_out or name in _LEFT_OUT:
            self._left_out += 1
        elif name == "t":
            self._in_text = True
        elif name in _BREAKS:
            self._add(_BREAKS[name])
        elif name == "p":
            self._paragraph = len(self._pieces)
            self._is_title = False
        elif name == "tc":
            self._cells += 1
        elif name == "altChunk":
            self._add(self._chunk(attributes.get("id", "")) + "\n\n")
        elif name == "rt":
            self._reading = len(self._pieces)

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif name == "t":
            self._in_text = False
        elif name == "p":
            if self._is_title and not self.title:
                self.title = "".join(self._pieces[self._paragraph :]).strip()
            self._add(" " if self._cells else "\n\n")
        elif name == "rt":  # stands before its base in the file
            self._readings.append("".join(self._pieces[self._reading :]))
            del self._pieces[self._reading :]
        elif name == "ruby":
            self._add("".join(f"({reading})" for reading in self._readings if reading))
            self._readings.clear()
        elif name == "tc":
            self._cells -= 1
            self._add("\t")
        elif name == "tr" or name == "tbl":
            self._add("\n")

    def data(self, text: str) -> None:
        if self._in_text and not self._left_out:
            self._add(text)

    def close(self) -> str:
        lines = (line.strip() for line in "".join(self._pieces).split("\n"))
        return "\n".join(lines).strip()

    def _add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._characters += len(piece)
        if self._characters > MAX_TEXT_CHARACTERS:
            raise CorpusError(f"has more than {MAX_TEXT_CHARACTERS} characters of text")


_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_CHAPTERS = frozenset({"application/xhtml+xml", "text/html", "text/x-oeb1-document"})


def read_epub(path: Path) -> FileText:
    """Read the chapters of a book; its table of contents is left out.

    A chapter that cannot be read is reported, and the others are the text.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text or too much.
    """
    with open_parts(path, "EPUB") as parts:
        root = parts.parse(_CONTAINER, _Attributes("rootfile", "full-path"))
        if not root:
            raise CorpusError("is not a readable EPUB: it names no book")
        book = parts.parse(root[0], _Package())
        encrypted = _encrypted(parts)
        texts: list[str] = []
        skipped: list[str] = []
        characters = 0
        for name in book.chapters(posixpath.dirname(root[0])):
            try:
                if name in encrypted:
                    raise CorpusError("is encrypted")
                texts.append(_chapter(parts.read(name)))
            except (CorpusError, *_DAMAGED) as error:
                skipped.append(f"{name}: {error}")
                continue
            characters += len(texts[-1])
            if characters > MAX_TEXT_CHARACTERS:
                raise CorpusError(f"has more than {MAX_TEXT_CHARACTERS} characters of text")
    text = "\n\n".join(filter(None, texts))
    if not text:
        raise CorpusError(skipped[0] if skipped else "has no text")
    metadata = described(book.field("creator"), book.field("date"))
    return FileText(
        book.field("title") or plain_title(text), text, metadata, skipped=tuple(skipped)
    )


def _chapter(data: bytes) -> str:
    """Return the text of a chapter, with that in sections of character data, which HTML has not."""
    begin, *sections = decode_html(data).text.split("<![CDATA[")
    markup = [begin]
    for section in sections:
        inside, end, after = section.partition("]]>")
        markup += [escape(inside) if end else "<![CDATA[" + inside, after]
    return parse_html("".join(markup))[1]


def _encrypted(parts: Parts) -> frozenset[str]:
    if _ENCRYPTION not in parts:
        return frozenset()
    # Fonts may be listed, too, which are obfuscated in books that anybody may read.
    names = parts.parse(_ENCRYPTION, _Attributes("CipherReference", "URI"))
    return frozenset(unquote(name) for name in names)


class _Attributes:
    """Finds the values of an attribute of the elements of a name."""

    def __init__(self, name: str, attribute: str) -> None:
        self._name = name
        self._attribute = attribute
        self._found: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == self._name and self._attribute in attributes:
            self._found.append(attributes[self._attribute])

    def end(self, name: str) -> None: ...

    def data(self, text: str) -> None: ...

    def close(self) -> list[str]:
        return self._found


@dataclass
class _Package:
    """The fields of a book, each first of its name, its files, and the order of its chapters."""

    fields: dict[str, str] = field(default_factory=dict)
    hrefs: dict[str, str] = field(default_factory=dict)
    spine: list[str] = field(default_factory=list)
    _field: str = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in ("title", "creator", "date"):
            self._field = "" if name in self.fields else name
        elif name == "item" and attributes.get("media-type") in _CHAPTERS:
            if "nav" not in attributes.get("properties", "").split():
                self.hrefs[attributes.get("id", "")] = attributes.get("href", "")
        elif name == "itemref":
            self.spine.append(attributes.get("idref", ""))

    def end(self, name: str) -> None:
        self._field = ""

    def data(self, text: str) -> None:
        if self._field:
            self.fields[self._field] = self.fields.get(self._field, "") + text

    def field(self, name: str) -> str:
        """Return a field, "" if it is missing."""
        return self.fields.get(name, "").strip()

    def close(self) -> "_Package":
        return self

    def chapters(self, folder: str) -> Iterator[str]:
        """Yield the names of the parts that are chapters, each once."""
        for name in dict.fromkeys(self.spine):
            if name in self.hrefs:
                href = unquote(self.hrefs[name].partition("#")[0])
                yield posixpath.normpath(posixpath.join(folder, href))
