"""What the retrievers for LangChain, LlamaIndex and Haystack share."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from longmatch.client import Client
from longmatch.errors import NotFoundError
from longmatch.results import Match
from longmatch.search import MatchOptions


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A document that matches a text.

    Attributes:
        id: of the document.
        text: all of it.
        score: what matches are ranked by.
        metadata: of the document, with its `title`, the `probability` that it is a match, and the
            `passages` of it that match the text, if the match is one of those that are explained.
    """

    id: str
    text: str
    score: float
    metadata: dict[str, Any]


def retrieve(client: Client, text: str, options: MatchOptions | None) -> Iterator[Retrieved]:
    """Yield the documents that match a text, best first, each read when it is needed.

    Args:
        client: of the collection.
        text: may be a whole document.
        options: of the match; by default ten documents, the first ones explained.
    """
    options = options or MatchOptions()
    if options.explain is None:
        options = replace(options, explain=True)
    for match in client.match(text, options).matches:
        with suppress(NotFoundError):  # it was deleted meanwhile
            whole = client.document(match.id, text=True).text or ""
            yield Retrieved(match.id, whole, match.score, _metadata(match))


def _metadata(match: Match) -> dict[str, Any]:
    passages = match.explanation.passages if match.explanation else []
    return {
        **match.metadata,
        "title": match.title,
        "probability": match.probability,
        "passages": [passage.right.text for passage in passages],
    }
