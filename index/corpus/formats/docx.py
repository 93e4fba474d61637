"""DOCX (Office Open XML): the text of the document, its footnotes and endnotes."""

from collections.abc import Mapping
from pathlib import Path

from index.corpus.formats.content import MAX_TEXT_CHARACTERS, FileText
from index.corpus.formats.titles import first_line
from index.corpus.formats.xml_parts import Parts, open_parts
from index.errors import CorpusError

_ROOT_RELATIONS = "_rels/.rels"
_PROPERTIES = "docProps/core.xml"
_NOTES = ("footnotes.xml", "endnotes.xml")
_TITLE_STYLES = ("Title", "Heading1")
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
# The same content again, for readers without the drawings; what a field is made of; settings.
_LEFT_OUT = frozenset({"Fallback", "instrText", "delText", "pPr", "rPr", "tblPr", "sectPr"})


def read_docx(path: Path) -> FileText:
    """Read the text of a document; deleted text of tracked changes is left out.

    The title is that of the properties, else the first paragraph in the style of a title or of a
    heading of the first level, else the first line. Paragraphs are separated by an empty line,
    table rows by a line break and cells by a tab.

    Raises:
        CorpusError: it is encrypted or damaged, or has no text or too much.
    """
    with open_parts(path, "DOCX") as parts:
        main = parts.parse(_ROOT_RELATIONS, _Relations()).get("officeDocument", "")
        if main not in parts:
            raise CorpusError("is not a readable DOCX: it names no document")
        body = _Body()
        parts.parse(main, body)
        folder = main.rpartition("/")[0]
        for name in _NOTES:
            if f"{folder}/{name}" in parts:
                parts.parse(f"{folder}/{name}", body)
        title = _title_of(parts) or body.title
    text = body.close()
    if not text:
        raise CorpusError("has no text")
    return FileText(title or first_line(text), text)


def _title_of(parts: Parts) -> str:
    return parts.parse(_PROPERTIES, _TextOf("title")).strip() if _PROPERTIES in parts else ""


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


class _Body:
    """Collects the paragraphs of a document, and after them those of its notes."""

    def __init__(self) -> None:
        self.title = ""
        self._pieces: list[str] = []
        self._characters = 0
        self._left_out = 0  # depth below the outermost element that is left out
        self._in_text = False
        self._cells = 0  # depth of table cells
        self._paragraph = 0  # where the last one begins among the pieces
        self._is_title = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "pStyle":
            self._is_title = attributes.get("val", "") in _TITLE_STYLES
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

    def end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif name == "t":
            self._in_text = False
        elif name == "p":
            if self._is_title and not self.title:
                self.title = "".join(self._pieces[self._paragraph :]).strip()
            self._add(" " if self._cells else "\n\n")
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
