"""What the formats share: the content of a file as it is read, its limits, and its title."""

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, pairwise, takewhile
from pathlib import Path

from index.errors import CorpusError

MAX_FILE_BYTES = 64 * 2**20
MAX_TEXT_CHARACTERS = 64 * 2**20


@dataclass(frozen=True, slots=True)
class FileText:
    """Title and text of a file.

    Attributes:
        title: "" where nothing in the file is one.
        text: of the whole file.
        metadata: `author` and `date` (ISO 8601) as the file says, and `pages`; those known.
        remarks: what the user must know of how it was read, such as an encoding that was guessed.
        skipped: its parts that could not be read, each with the reason.
    """

    title: str
    text: str
    metadata: Mapping[str, str | int] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    skipped: Sequence[str] = ()


_SOFT_HYPHEN = "\u00ad"
_ENCODED_DATA = re.compile(
    r"data:[\w.+-]+/[\w.+-]+(?:;[\w.+=-]+)*;base64,[A-Za-z0-9+/=%]*"
    r"|^(?:[A-Za-z0-9+/]{60,100}\r?\n){3,}(?:[A-Za-z0-9+/]{1,100}={0,2}$)?"
    r"|[A-Za-z0-9+/]{400,}={0,2}",
    re.MULTILINE,
)


def without_data(text: str) -> str:
    """Return a text without pictures and other data in base64, and without soft hyphens."""
    return _ENCODED_DATA.sub(_unless_words, text.replace(_SOFT_HYPHEN, ""))


def _unless_words(found: re.Match[str]) -> str:
    data = found[0]
    kinds = (str.isdigit, str.isupper, str.islower)
    return "" if all(any(map(kind, data)) for kind in kinds) else data


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        CorpusError: it is larger than `MAX_FILE_BYTES`.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise CorpusError(f"is larger than {MAX_FILE_BYTES // 2**20} MiB")
    return path.read_bytes()


MAX_TITLE = 200
_HEAD_CHARACTERS = 65_536


def shorten(title: str) -> str:
    """Return a title on one line, of at most `MAX_TITLE` characters."""
    line = " ".join(title[:_HEAD_CHARACTERS].split())
    line = "".join(character for character in line if character.isprintable())
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1] + "…"


MAX_SENTENCE = 100
_COMMENT_MARKS = re.compile(r"^(?:[%#;*/=~+-]+|\.\.)\s+|\s+[%#*=~+-]+$")
_WRAPPED = 40  # characters of a line that a sentence goes on below
_SENTENCE = re.compile(r".+?[.!?](?=\s|$)")
_LEADS_ON = re.compile(
    r"[\\<{\[$@&|].*|.*[:;,]|.*\b(all rights reserved|public domain)\b.*|(copyright|\(c\)|©)\s.*",
    re.IGNORECASE,
)


def plain_title(text: str) -> str:
    """Return the first line that has a letter or a digit, or the sentence that begins with it.

    "" where that is no title: a long sentence, code, a greeting, or what a licence demands.
    """
    lines = map(str.strip, text[:_HEAD_CHARACTERS].splitlines())
    title = _COMMENT_MARKS.sub("", next(filter(_has_words, lines), ""))
    wrapped = False
    for line in lines:
        more = _COMMENT_MARKS.sub("", line)
        goes_on = more[:1].islower() or (wrapped and more)
        if not goes_on or not _WRAPPED <= len(title) <= MAX_SENTENCE:
            break
        title, wrapped = f"{title} {more}", True
    if wrapped or len(title) > MAX_SENTENCE:
        sentence = _SENTENCE.match(title)
        title = sentence[0] if sentence else title
    return "" if len(title) > MAX_SENTENCE or _LEADS_ON.fullmatch(title) else title


_GENERIC = re.compile(
    r"""untitled.*|microsoft\ (word|powerpoint)\b.*|(powerpoint\ )?presentation\d*|document\d*
    |\[?no\ title\]?|template\b.*|slide\ \d+|proceedings\ template.*|index|title|[\W\d_]*
    |\S+\.(dvi|docx?|tex|eps|e?pdf|p?s|indd|qxd|rtf|odt|pptx?|xlsx?|html?|txt|md|rst)""",
    re.IGNORECASE | re.VERBOSE,
)


def is_generic(title: str) -> bool:
    """Return whether a title is that of a program or a file, not of what is written in it."""
    return _GENERIC.fullmatch(title.strip()) is not None


_BETWEEN_WORDS = re.compile(r"[\s_+]+|(?<!\d)[-.]+|[-.]+(?!\d)|%20")


def readable_name(path: Path) -> str:
    """Return the name of a file as a title: words instead of hyphens and underscores."""
    words = " ".join(_BETWEEN_WORDS.sub(" ", path.stem).split())
    return shorten(words[:1].upper() + words[1:]) or shorten(path.stem)


_ISO_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


def described(author: str = "", date: str = "", pages: int = 0) -> dict[str, str | int]:
    """Return the metadata of a file; a date that does not begin as ISO 8601 is left out."""
    found = _ISO_DATE.match(date.strip())
    values: dict[str, str | int] = {"author": shorten(author), "pages": pages}
    values["date"] = found[0] if found else ""
    return {name: value for name, value in values.items() if value}


_MARKUP = re.compile(
    r"""!\[[^\]]{0,200}\]\([^)]{0,500}\)|\[(?P<link>[^\]]{1,200})\](\([^)]{0,500}\)|\[[^\]]{0,200}\])
    |<[a-zA-Z/!][^<>]{0,500}>|:[a-z:+-]{1,40}:(?=`)|(?<!\w)\*{1,3}|\*{1,3}(?!\w)|`{1,2}""",
    re.VERBOSE,
)


def _unmarked(line: str) -> str:
    """Return a line of Markdown or reStructuredText without the markup of its words."""
    for _ in range(2):  # a link may have markup in it
        line = _MARKUP.sub(lambda found: found["link"] or "", line)
    return line.strip()


def title_and_metadata(
    text: str, heading_of: Callable[[list[str]], str]
) -> tuple[str, dict[str, str | int]]:
    """Return what the front matter or the fields of a text with markup say, else its heading."""
    lines = text[:_HEAD_CHARACTERS].splitlines()
    front, body = _split_front_matter(lines)
    fields = _fields(front or _field_list(lines))
    title = fields.get("title", "")
    about = described(fields.get("author", ""), fields.get("date") or fields.get("created", ""))
    return title if _has_words(title) else heading_of(body), about


def rst_heading(lines: list[str]) -> str:
    """Return the title of the first section of reStructuredText, else the first line.

    A line is the title of a section if it is underlined over its whole length. One that every
    article has, such as "Abstract", is not the title of the whole.
    """
    for line, below in pairwise(lines):
        rule = below.rstrip()
        if _is_rule(rule, string.punctuation) and len(rule) >= len(line.rstrip()):
            heading = _REFERENCE.sub("", _unmarked(line))
            if _has_words(heading) and heading.lower() not in _OF_EVERY_ARTICLE:
                return heading
    return plain_title("\n".join(map(_unmarked, _without_directives(lines))))


_REFERENCE = re.compile(r"(?<=\w)__?(?!\w)")  # the mark of a link after its words


def _without_directives(lines: list[str]) -> Iterator[str]:
    """Yield the lines that are shown: no directive or comment, nor what belongs to it."""
    within = False
    for line in lines:
        within = line.startswith("..") or (within and (not line.strip() or line[0].isspace()))
        if not within:
            yield line


_OF_EVERY_ARTICLE = frozenset({"abstract", "contents", "table of contents"})
_FIELD = re.compile(r":?([A-Za-z][\w -]{0,40}):(?:\s+(.*))?$")


def _field_list(lines: list[str]) -> list[str]:
    """Return the fields at the begin, `:Title: …` or as in a mail, down to the first empty line."""
    found = list(takewhile(str.strip, dropwhile(lambda line: not line.strip(), lines)))
    return found if found and _FIELD.match(found[0]) else []


def _fields(lines: list[str]) -> dict[str, str]:
    """Return the fields of a list by their names in lower case, each with its further lines."""
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if match := _FIELD.match(line):
            name = match[1].lower()
            found.setdefault(name, (match[2] or "").strip().strip("\"'"))
        elif name and line[:1].isspace():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _split_front_matter(lines: list[str]) -> tuple[list[str], list[str]]:
    if lines and lines[0].strip() == "---":
        for end, line in enumerate(lines[1:], start=1):
            if line.strip() in ("---", "..."):
                return lines[1:end], lines[end + 1 :]
    return [], lines


def markdown_heading(lines: list[str]) -> str:
    """Return the first heading of Markdown, else the first line with a word."""
    fenced = False
    for above, line in pairwise(["", *lines]):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced:
            continue
        elif _is_rule(stripped, "=-") and _has_words(_unmarked(above)):
            return _unmarked(above)
        elif stripped.startswith("#"):
            heading = stripped.lstrip("#")
            if heading[0:1].isspace() and _has_words(_unmarked(heading)):
                return _unmarked(heading.rstrip("#"))
        elif stripped.lower().startswith("<h1") and _has_words(_unmarked(line)):
            return _unmarked(line)
    return next((line for line in map(_unmarked, lines) if _has_words(line)), "")


def _has_words(line: str) -> bool:
    return any(character.isalnum() for character in line)


def _is_rule(line: str, characters: str) -> bool:
    return len(line) >= 2 and line[0] in characters and line == line[0] * len(line)
