"""Queries with judged answers, as feedback has them, and their division without leaks."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_HASH_BYTES = 6


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """A query of users, and what they said of its answers.

    Attributes:
        document_id: of the stored document that was the query; None for a text.
        text: the whole of it; empty for a stored document, which has its own.
        title: of the text, if it has one.
        key: the same for queries that must not be divided, such as copies of one text.
        grades: of the answers by their document ids; over 0 is relevant.
        answer_keys: the keys of the answers by their document ids, as those of queries.
    """

    document_id: str | None
    text: str
    title: str
    key: str
    grades: Mapping[str, int]
    answer_keys: Mapping[str, str]

    @property
    def compares(self) -> bool:
        """Whether some answers are more relevant than others."""
        return len(set(self.grades.values())) > 1

    @property
    def relevant(self) -> int:
        """How many answers are relevant."""
        return sum(grade > 0 for grade in self.grades.values())


def hold_out(queries: Sequence[JudgedQuery], share: float) -> list[bool]:
    """Choose the queries to hold out, by hashes, so that the choice is the same each time.

    Queries of one key stay together, and so do a query and an answer that is a query itself: a
    judgement of two documents holds in both directions.

    Args:
        queries: N of them.
        share: of the queries to hold out; more if those that stay together are many.

    Returns:
        Whether each is held out; none, or all, if they cannot be divided.
    """
    groups = _groups(queries)
    sizes = Counter(groups[query.key] for query in queries)
    chosen: set[str] = set()
    held_out = 0
    for group in sorted(sizes, key=_hash):
        if held_out >= share * len(queries):
            break
        chosen.add(group)
        held_out += sizes[group]
    return [groups[query.key] in chosen for query in queries]


def not_learned(queries: Sequence[JudgedQuery], learned: Collection[str]) -> list[bool]:
    """Return of which queries nothing was learned.

    Args:
        queries: N of them.
        learned: the keys of queries that were learned from; not all need to be among these.

    Returns:
        Whether each has no such key, no answer that has one, and is not kept together, as by
        `hold_out`, with one that has.
    """
    groups = _groups(queries)
    known = {
        groups[query.key]
        for query in queries
        if not {query.key, *query.answer_keys.values()}.isdisjoint(learned)
    }
    return [groups[query.key] not in known for query in queries]


def _groups(queries: Sequence[JudgedQuery]) -> dict[str, str]:
    """Return the least member of the set that must not be divided, of the key of each query."""
    sets = {query.key: {query.key} for query in queries}
    for query in queries:
        for key in sets.keys() & query.answer_keys.values():
            joined = sets[query.key] | sets[key]
            sets |= dict.fromkeys(joined, joined)
    return {key: min(joined) for key, joined in sets.items()}


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:_HASH_BYTES]
