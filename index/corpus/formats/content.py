"""What the formats share: the content of a file as it is read, its limits, and its title."""

import string
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from index.errors import CorpusError

MAX_FILE_BYTES = 64 * 2**20
MAX_TEXT_CHARACTERS = 64 * 2**20


@dataclass(frozen=True, slots=True)
class FileText:
    """Title and text of a file."""

    title: str
    text: str


def read_bytes(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        CorpusError: it is larger than `MAX_FILE_BYTES`.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise CorpusError(f"is larger than {MAX_FILE_BYTES} bytes")
    return data


MAX_TITLE = 200
_HEAD_CHARACTERS = 65_536


def shorten(title: str) -> str:
    """Return a title on one line, of at most `MAX_TITLE` characters."""
    line = " ".join(title[:_HEAD_CHARACTERS].split())
    line = "".join(character for character in line if character.isprintable())
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1] + "…"


def first_line(text: str) -> str:
    """Return the first line that has a letter or a digit, or an empty string."""
    return _first_with_words(text[:_HEAD_CHARACTERS].splitlines())


def markdown_title(text: str) -> str:
    """Return the title of the front matter, else the first heading, else the first line."""
    lines = text[:_HEAD_CHARACTERS].splitlines()
    front, body = _split_front_matter(lines)
    for line in front:
        key, _, value = line.partition(":")
        if key.strip().lower() == "title" and _has_words(value):
            return value.strip().strip("\"'")
    return _first_markdown_heading(body) or _first_with_words(body)


def rst_title(text: str) -> str:
    """Return the first line that is underlined over its whole length, else the first line."""
    lines = text[:_HEAD_CHARACTERS].splitlines()
    for line, below in pairwise(lines):
        rule = below.rstrip()
        if _is_rule(rule, string.punctuation) and len(rule) >= len(line.rstrip()):
            heading = line.strip()
            if _has_words(heading):
                return heading
    return _first_with_words(lines)


def _split_front_matter(lines: list[str]) -> tuple[list[str], list[str]]:
    if lines and lines[0].strip() == "---":
        for end, line in enumerate(lines[1:], start=1):
            if line.strip() in ("---", "..."):
                return lines[1:end], lines[end + 1 :]
    return [], lines


def _first_markdown_heading(lines: list[str]) -> str:
    fenced = False
    for above, line in pairwise(["", *lines]):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced:
            continue
        elif _is_rule(stripped, "=-") and _has_words(above):
            return above.strip()
        elif stripped.startswith("#"):
            heading = stripped.lstrip("#")
            if heading[0:1].isspace() and _has_words(heading):
                return heading.rstrip("#").strip()
    return ""


def _first_with_words(lines: list[str]) -> str:
    return next((line.strip() for line in lines if _has_words(line)), "")


def _has_words(line: str) -> bool:
    return any(character.isalnum() for character in line)


def _is_rule(line: str, characters: str) -> bool:
    return len(line) >= 2 and line[0] in characters and line == line[0] * len(line)
