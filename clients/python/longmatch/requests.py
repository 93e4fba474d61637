"""Requests: texts, stored documents, documents to store, options; as JSON and as paths."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from urllib.parse import quote

Mode = Literal["semantic", "lexical", "hybrid"]


@dataclass(frozen=True, slots=True)
class Document:
    """A document to store, or one that was exported.

    Attributes:
        id: chosen by the caller; a stored document with the same one is replaced.
        text: the whole of it.
        title: of the text, if it has one.
        metadata: any JSON object.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """A text to match, with its title."""

    text: str
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored document, by its id: it is not encoded again."""

    id: str


Query = str | Text | Stored  # a str is a text without a title


@dataclass(frozen=True, slots=True)
class Align:
    """How many candidates are matched block by block, and for how many milliseconds."""

    candidates: int | None = None
    budget_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Rerank:
    """How many candidates are read together with the query, and for how many milliseconds."""

    candidates: int
    budget_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """How many of the first matches are explained, with how many passages each."""

    matches: int | None = None
    passages: int | None = None


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where the events of a standing query are sent; without a secret, the server makes one."""

    url: str
    secret: str | None = field(default=None, repr=False)


def body_of(**fields: object) -> dict[str, Any]:
    """Return fields as JSON, without those that are None."""
    return {name: _value(value) for name, value in fields.items() if value is not None}


def query_body(query: Query) -> dict[str, Any]:
    """Return a query as JSON."""
    return body_of(**({"text": query} if isinstance(query, str) else asdict(query)))


def document_body(document: Document) -> dict[str, Any]:
    """Return a document as JSON."""
    return {
        "id": document.id,
        "text": document.text,
        "title": document.title,
        "metadata": dict(document.metadata),
    }


def segment(name: str) -> str:
    """Return a name as one segment of a path; `.` and `..` would otherwise change the path."""
    return quote(name, safe="").replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def document_path(document_id: str, below: str = "") -> str:
    """Return the path of a document, or of what is below it."""
    return f"/documents/{segment(document_id)}{below}"


def _value(value: object) -> object:
    return (
        body_of(**asdict(value)) if isinstance(value, Align | Rerank | Explain | Webhook) else value
    )
