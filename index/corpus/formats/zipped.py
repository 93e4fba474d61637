"""DOCX (Office Open XML) and EPUB: XML in zip archives, read within limits.

Nothing outside of the archive is read, and the parser refuses entities that expand without end. Of
the text itself no tree is ever held.
"""

import lzma
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lxml import etree

from index.corpus.formats.content import (
    MAX_FILE_BYTES,
    FileText,
    described,
    is_generic,
    plain_title,
)
from index.corpus.formats.html import decode_html, parse_html
from index.corpus.formats.plain import decode_text
from index.errors import CorpusError

MAX_PARTS_BYTES = 4 * MAX_FILE_BYTES  # decompressed, of all parts of an archive that are read
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError)

Elements = Any  # of lxml, the outermost of them


class Parts:
    """The parts of an open archive; `open_parts` makes it."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._left = MAX_PARTS_BYTES

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def read(self, name: str) -> bytes:
        """Return a part.

        Raises:
            CorpusError: it is missing, or the parts that are read become too large.
        """
        if name not in self:
            raise CorpusError(f"has no {name}")
        # Refused by the size that the archive says, before anything is decompressed. A part is
        # never read beyond that size.
        size = self._archive.getinfo(name).file_size
        self._left -= size
        if self._left < 0:
            most = MAX_PARTS_BYTES // 2**20
            raise CorpusError(f"{name}: is larger than {most} MiB when decompressed")
        with self._archive.open(name) as stream:
            return stream.read(size)

    def parse(self, name: str, body: "_Body | None" = None) -> Any:
        """Return the elements of a part of XML as a tree, or have a body collect them.

        Raises:
            CorpusError: as `read`; or it is not XML.
        """
        parser = etree.XMLParser(
            target=body,
            huge_tree=True,  # without it, depth and length are limited
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
        )
        try:
            parser.feed(self.read(name))
            return parser.close()
        except etree.XMLSyntaxError as error:
            raise CorpusError(f"{name}: is not XML: {error.msg}") from error

    def optional(self, name: str) -> Elements:
        """Return the elements of a part as `parse`; nothing is in them where it is missing."""
        return self.parse(name) if name in self else etree.Element("missing")


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


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _attribute(attributes: Mapping[str, str], name: str) -> str:
    """Return the attribute of a name in any namespace, "" if there is none."""
    return next((attributes[key] for key in attributes if _local(key) == name), "")


_ROOT_RELATIONS = "_rels/.rels"
_MAIN = "/officeDocument"
_PROPERTIES = "docProps/core.xml"
_APPLICATION = "docProps/app.xml"
_NOTES = ("footnotes.xml", "endnotes.xml")
_TITLE_STYLES = frozenset({"Title", "Heading1"})
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
        CorpusError: it is encrypted or damaged, or has no text.
    """
    with open_parts(path, "DOCX") as parts:
        relations = parts.parse(_ROOT_RELATIONS).iter("{*}Relationship")
        mains = (r.get("Target", "") for r in relations if r.get("Type", "").endswith(_MAIN))
        main = next(mains, "").lstrip("/")
        if main not in parts:
            raise CorpusError("is not a readable DOCX: it names no document")
        folder, _, name = main.rpartition("/")
        relations = parts.optional(f"{folder}/_rels/{name}.rels").iter("{*}Relationship")
        targets = {relation.get("Id"): relation.get("Target", "") for relation in relations}
        styles = _title_styles(parts.optional(f"{folder}/styles.xml")) or _TITLE_STYLES
        body = _Body(styles, parts, folder, targets)
        parts.parse(main, body)
        for name in _NOTES:
            if f"{folder}/{name}" in parts:
                parts.parse(f"{folder}/{name}", body)
        about = parts.optional(_PROPERTIES)
        title, author, date = (_field(about, name) for name in ("title", "creator", "created"))
        pages = _field(parts.optional(_APPLICATION), "Pages")
    text = body.close()
    return FileText(
        (not is_generic(title) and title) or body.title or plain_title(text),
        text,
        described(author, date, int(pages) if pages.isdecimal() else 0),
        skipped=tuple(body.skipped),
    )


def _field(elements: Elements, name: str) -> str:
    """Return the text of the first element of a name, "" if there is none."""
    found = next(elements.iter(f"{{*}}{name}"), None)
    return "" if found is None else "".join(found.itertext()).strip()


def _values(elements: Elements, name: str, attribute: str) -> list[str]:
    """Return the values of an attribute of the elements of a name."""
    return [
        element.get(attribute)
        for element in elements.iter(f"{{*}}{name}")
        if attribute in element.attrib
    ]


def _title_styles(styles: Elements) -> frozenset[str]:
    """Return the ids of the styles of titles, by their names, which are the same everywhere."""
    return frozenset(
        _attribute(style.attrib, "styleId")
        for style in styles.iter("{*}style")
        if any(
            (_local(e.tag), _attribute(e.attrib, "val").lower()) in _OF_TITLES
            for e in style.iter("*")
        )
    )


_OF_TITLES = {("name", "title"), ("name", "heading 1"), ("outlineLvl", "0")}


class _Body:
    """Collects the paragraphs of a document, and after them those of its notes.

    Attributes:
        title: the first paragraph in the style of a title.
        skipped: the parts in other formats that it includes and that are not read.
    """

    def __init__(
        self, title_styles: frozenset[str], parts: Parts, folder: str, targets: Mapping[str, str]
    ) -> None:
        self.title = ""
        self.skipped: list[str] = []
        self._title_styles = title_styles
        self._parts, self._folder, self._targets = parts, folder, targets
        self._reading = 0  # where that of the last base text begins among the pieces
        self._readings: list[str] = []
        self._pieces: list[str] = []
        self._left_out = 0  # depth below the outermost element that is left out
        self._in_text = False
        self._cells = 0  # depth of table cells
        self._paragraph = 0  # where the last one begins among the pieces
        self._is_title = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = _local(tag)
        if name == "pStyle":
            self._is_title = _attribute(attributes, "val") in self._title_styles
        elif name == "outlineLvl":
            self._is_title = _attribute(attributes, "val") == "0"
        if self._left_out or name in _LEFT_OUT:
            self._left_out += 1
        elif name == "t":
            self._in_text = True
        elif name in _BREAKS:
            self._pieces.append(_BREAKS[name])
        elif name == "p":
            self._paragraph = len(self._pieces)
            self._is_title = False
        elif name == "tc":
            self._cells += 1
        elif name == "altChunk":
            self._pieces.append(self._included(_attribute(attributes, "id")) + "\n\n")
        elif name == "rt":
            self._reading = len(self._pieces)

    def end(self, tag: str) -> None:
        name = _local(tag)
        if self._left_out:
            self._left_out -= 1
        elif name == "t":
            self._in_text = False
        elif name == "p":
            if self._is_title and not self.title:
                self.title = "".join(self._pieces[self._paragraph :]).strip()
            self._pieces.append(" " if self._cells else "\n\n")
        elif name == "rt":  # stands before its base in the file
            self._readings.append("".join(self._pieces[self._reading :]))
            del self._pieces[self._reading :]
        elif name == "ruby":
            self._pieces.append("".join(f"({reading})" for reading in self._readings if reading))
            self._readings.clear()
        elif name == "tc":
            self._cells -= 1
            self._pieces.append("\t")
        elif name == "tr" or name == "tbl":
            self._pieces.append("\n")

    def data(self, text: str) -> None:
        if self._in_text and not self._left_out:
            self._pieces.append(text)

    def _included(self, relation: str) -> str:
        """Return the text of a part in another format by the id of its relation."""
        target = self._targets.get(relation, "")
        name = posixpath.normpath(posixpath.join("/", self._folder, target)).lstrip("/")
        try:
            if name.endswith((".htm", ".html", ".xhtml")):
                return parse_html(decode_html(self._parts.read(name)).text).text
            if name.endswith(".txt"):
                return decode_text(self._parts.read(name)).text
            raise CorpusError("is a part of a kind that is not read")
        except CorpusError as error:
            self.skipped.append(f"{name}: {error}")
            return ""

    def close(self) -> str:
        lines = (line.strip() for line in "".join(self._pieces).split("\n"))
        return "\n".join(lines).strip()


_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_CHAPTERS = frozenset({"application/xhtml+xml", "text/html", "text/x-oeb1-document"})


def read_epub(path: Path) -> FileText:
    """Read the chapters of a book; its table of contents is left out.

    A chapter that cannot be read is reported, and the others are the text.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text.
    """
    with open_parts(path, "EPUB") as parts:
        books = _values(parts.parse(_CONTAINER), "rootfile", "full-path")
        if not books:
            raise CorpusError("is not a readable EPUB: it names no book")
        book = parts.parse(books[0])
        # Fonts may be listed, too, which are obfuscated in books that anybody may read.
        uris = _values(parts.optional(_ENCRYPTION), "CipherReference", "URI")
        encrypted = frozenset(map(unquote, uris))
        texts: list[str] = []
        skipped: list[str] = []
        for name in _chapters(book, posixpath.dirname(books[0])):
            try:
                if name in encrypted:
                    raise CorpusError("is encrypted")
                if name not in parts:
                    raise CorpusError("is missing")
                texts.append(_chapter(parts.read(name)))
            except (CorpusError, *_DAMAGED) as error:
                skipped.append(f"{name}: {error}")
    text = "\n\n".join(filter(None, texts))
    if skipped and not text:
        raise CorpusError(skipped[0])
    title = _field(book, "title") or plain_title(text)
    metadata = described(_field(book, "creator"), _field(book, "date"))
    return FileText(title, text, metadata, skipped=tuple(skipped))


def _chapter(data: bytes) -> str:
    """Return the text of a chapter, with that in sections of character data, which HTML has not."""
    begin, *sections = decode_html(data).text.split("<![CDATA[")
    markup = [begin]
    for section in sections:
        inside, end, after = section.partition("]]>")
        markup += [escape(inside) if end else "<![CDATA[" + inside, after]
    return parse_html("".join(markup)).text


def _chapters(book: Elements, folder: str) -> Iterator[str]:
    """Yield the names of the parts that are chapters, each once, without the table of contents."""
    hrefs = {
        item.get("id"): item.get("href", "")
        for item in book.iter("{*}item")
        if item.get("media-type") in _CHAPTERS and "nav" not in item.get("properties", "").split()
    }
    for name in dict.fromkeys(_values(book, "itemref", "idref")):
        if name in hrefs:
            href = unquote(hrefs[name].partition("#")[0])
            yield posixpath.normpath(posixpath.join(folder, href))
