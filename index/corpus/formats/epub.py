"""EPUB: the chapters of a book, in the order in which they are read."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from index.corpus.formats.content import MAX_TEXT_CHARACTERS, FileText
from index.corpus.formats.html import decode_html, parse_html
from index.corpus.formats.titles import first_line
from index.corpus.formats.xml_parts import Parts, open_parts
from index.errors import CorpusError

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_CHAPTERS = frozenset({"application/xhtml+xml", "text/html", "text/x-oeb1-document"})


def read_epub(path: Path) -> FileText:
    """Read the chapters of a book; its table of contents is left out.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text or too much.
    """
    with open_parts(path, "EPUB") as parts:
        root = parts.parse(_CONTAINER, _Attributes("rootfile", "full-path"))
        if not root:
            raise CorpusError("is not a readable EPUB: it names no book")
        book = parts.parse(root[0], _Package())
        encrypted = _encrypted(parts)
        texts = []
        characters = 0
        for name in book.chapters(posixpath.dirname(root[0])):
            if name in encrypted:
                raise CorpusError(f"{name}: is encrypted")
            try:
                texts.append(parse_html(decode_html(parts.read(name)))[1])
            except CorpusError as error:
                raise CorpusError(f"{name}: {error}") from error
            characters += len(texts[-1])
            if characters > MAX_TEXT_CHARACTERS:
                raise CorpusError(f"has more than {MAX_TEXT_CHARACTERS} characters of text")
    text = "\n\n".join(filter(None, texts))
    if not text:
        raise CorpusError("has no text")
    return FileText(book.title.strip() or first_line(text), text)


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
    """The title of a book, its files, and the order of its chapters."""

    title: str = ""
    hrefs: dict[str, str] = field(default_factory=dict)
    spine: list[str] = field(default_factory=list)
    _in_title: bool = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "title":
            self._in_title = not self.title
        elif name == "item" and attributes.get("media-type") in _CHAPTERS:
            if "nav" not in attributes.get("properties", "").split():
                self.hrefs[attributes.get("id", "")] = attributes.get("href", "")
        elif name == "itemref":
            self.spine.append(attributes.get("idref", ""))

    def end(self, name: str) -> None:
        self._in_title = False

    def data(self, text: str) -> None:
        if self._in_title:
            self.title += text

    def close(self) -> "_Package":
        return self

    def chapters(self, folder: str) -> Iterator[str]:
        """Yield the names of the parts that are chapters, each once."""
        for name in dict.fromkeys(self.spine):
            if name in self.hrefs:
                href = unquote(self.hrefs[name].partition("#")[0])
                yield posixpath.normpath(posixpath.join(folder, href))
