"""A document of a source: its text, what it links to, and where its text names that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Mention(NamedTuple):
    """The characters [start, end) of a text, which name the document `target`."""

    start: int
    end: int
    target: str


@dataclass(frozen=True, slots=True)
class LinkedDocument:
    """A document as a source gives it.

    Attributes:
        id: unique in the source.
        title: on one line.
        text: complete, with the names of other documents.
        links: ids that it links to; some may not exist.
        mentions: in the order of the text, none within another.
        group: documents of one group are in one split; empty for a document of no group.
        metadata: kept in the corpus, such as package and licence.
    """

    id: str
    title: str
    text: str
    links: frozenset[str]
    mentions: tuple[Mention, ...] = ()
    group: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def without_overlaps(mentions: list[Mention]) -> tuple[Mention, ...]:
    """Return mentions in the order of the text; of overlapping ones the longest remains."""
    kept: list[Mention] = []
    for mention in sorted(mentions, key=lambda one: (one.start, -one.end)):
        if kept and mention.start < kept[-1].end:
            if mention.end - mention.start > kept[-1].end - kept[-1].start:
                kept[-1] = mention
        else:
            kept.append(mention)
    return tuple(kept)
