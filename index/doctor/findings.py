"""What an examination of a data directory finds."""

from dataclasses import dataclass
from typing import Literal

Remedy = Literal[
    "rebuild the index",
    "make the lexical index again",
    "find the families again",
    "make the metadata values again",
    "make the database's indexes again",
    "encode again",
    "delete it",
    "take the checksums again",
    "write its digest again",
    "restore a backup",
    "install it again",
]
# All that needs nothing but the data directory and the checkpoint.
REPAIRABLE: frozenset[Remedy] = frozenset(
    (
        "rebuild the index",
        "make the lexical index again",
        "find the families again",
        "make the metadata values again",
        "make the database's indexes again",
        "encode again",
        "delete it",
        "take the checksums again",
        "write its digest again",
    )
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Attributes:
        what: the file, or the part of the store.
        problem: what is wrong with it, for people.
        remedy: what helps.
        vector_ids: of the documents to encode again.
    """

    what: str
    problem: str
    remedy: Remedy
    vector_ids: tuple[int, ...] = ()

    @property
    def repairable(self) -> bool:
        """Whether `repair` can do it."""
        return self.remedy in REPAIRABLE
