"""The document: a text that a user provides under an id."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unicodedata import category

from encoder.sentences import replace_lone_surrogates
from index.errors import DocumentError

MAX_ID_CHARACTERS = 512
MAX_TITLE_CHARACTERS = 4_096
MAX_METADATA_BYTES = 65_536
# Of objects and lists inside each other, the metadata itself being the first. Every way in has this
# one limit: what reads metadata, some of it recursively, need not expect more.
MAX_METADATA_LEVELS = 64

# `json.dumps` would make another each time.
_encode = json.JSONEncoder(sort_keys=True, allow_nan=False, ensure_ascii=False).encode
_CONTAINERS = (Mapping, list, tuple)
_CONTROL_OR_SURROGATE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a corpus.

    Lone surrogates, which UTF-8 cannot encode, are replaced one for one by U+FFFD, so that
    character offsets into `text` match what the user sees.

    Raises:
        DocumentError: a field is missing, empty or over its limit.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", replace_lone_surrogates(self.text))
        object.__setattr__(self, "title", replace_lone_surrogates(self.title))
        _check_id(self.id)
        if not self.text.strip():
            raise DocumentError("text", "is empty")
        if len(self.title) > MAX_TITLE_CHARACTERS:
            raise DocumentError("title", f"is longer than {MAX_TITLE_CHARACTERS} characters")
        if is_too_deep(self.metadata):
            raise DocumentError("metadata", TOO_DEEP)
        metadata = metadata_json(self.metadata)
        if len(metadata.encode()) > MAX_METADATA_BYTES:
            raise DocumentError("metadata", f"is larger than {MAX_METADATA_BYTES} bytes of JSON")
        object.__setattr__(self, "metadata", json.loads(metadata))

    @classmethod
    def stored(
        cls, document_id: str, text: str, title: str, metadata: Mapping[str, Any]
    ) -> "Document":
        """Return a document as the store has it, which was checked when it was put."""
        document = object.__new__(cls)
        values = {"id": document_id, "text": text, "title": title, "metadata": metadata}
        for name, value in values.items():
            object.__setattr__(document, name, value)
        return document

    @property
    def titled_text(self) -> str:
        """The text with the title as its first paragraph, unless it begins with it already."""
        return text_below(self.title, self.text)

    @property
    def content_hash(self) -> bytes:
        """SHA-256 of the text, the part of a document that decides its vector."""
        return hashlib.sha256(self.text.encode()).digest()


def text_below(title: str, text: str) -> str:
    """Return a text with its title as the first paragraph, unless it begins with it already."""
    title = title.strip()
    return text if not title or text.lstrip().startswith(title) else f"{title}\n\n{text}"


TOO_DEEP = f"is nested more than {MAX_METADATA_LEVELS} levels deep"


def is_too_deep(metadata: object) -> bool:
    """Return whether metadata has more than `MAX_METADATA_LEVELS` levels; not recursive."""
    level: list[Any] = [metadata]
    for _ in range(MAX_METADATA_LEVELS):
        parts = (
            container.values() if isinstance(container, Mapping) else container
            for container in level
        )
        level = [part for values in parts for part in values if isinstance(part, _CONTAINERS)]
        if not level:
            return False
    return True


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """Serialise metadata canonically: sorted keys, lone surrogates replaced.

    Raises:
        DocumentError: a value that JSON cannot hold.
    """
    try:
        text = _encode(dict(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise DocumentError("metadata", f"is not JSON: {error}") from error
    return replace_lone_surrogates(text)


def _check_id(document_id: str) -> None:
    if not document_id:
        raise DocumentError("id", "is empty")
    if len(document_id) > MAX_ID_CHARACTERS:
        raise DocumentError("id", f"is longer than {MAX_ID_CHARACTERS} characters")
    if _CONTROL_OR_SURROGATE.search(document_id):
        raise DocumentError("id", "has a control character or a lone surrogate")


@dataclass(frozen=True, slots=True)
class SkippedInput:
    """A piece of input that was left out, while the rest of a corpus is read.

    Attributes:
        where: the file within the corpus, with the line number in JSON Lines.
        reason: what is wrong with it.
        lost: False where nothing was meant to be read, or all was, and the user must know how.
    """

    where: str
    reason: str
    lost: bool = True


def printable(text: str) -> str:
    """Replace what would garble a line or move a cursor: controls, line breaks, bidi overrides."""
    kept = (part if part.isprintable() or category(part) == "Zs" else "\ufffd" for part in text)
    return "".join(kept)
