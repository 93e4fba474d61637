"""A verdict: what a user says of one match of one query."""

import hashlib
from dataclasses import dataclass

MAX_GRADE = 3
_ID_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """What was asked: a stored document, or a text.

    Attributes:
        document_id: of the stored document; None for a text.
        text: None for a stored document, and where texts are not read.
        title: of the text, if it has one.
    """

    document_id: str | None = None
    text: str | None = None
    title: str = ""

    @property
    def digest(self) -> bytes:
        """SHA-256, by which two queries are the same; of a query with its text."""
        digest = hashlib.sha256()
        for part in (self.document_id, self.text, self.title):
            encoded = b"" if part is None else part.encode()
            digest.update(b"%d " % (-1 if part is None else len(encoded)) + encoded)
        return digest.digest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verdict; there is at most one of a query and a document.

    Attributes:
        id: made of the query and the document, so that it is the same when it is given again.
        query: what was asked.
        match_id: of the document that was the answer.
        grade: from 0, not relevant, to `MAX_GRADE`.
        created: ISO 8601 in UTC.
        changed: when this grade was given, ISO 8601 in UTC.
    """

    id: str
    query: JudgedQuery
    match_id: str
    grade: int
    created: str
    changed: str


def verdict_id(query: bytes, match_id: str) -> str:
    """Return the id of the verdict on a document as an answer to the query of this digest."""
    return hashlib.sha256(query + match_id.encode()).hexdigest()[:_ID_CHARACTERS]
