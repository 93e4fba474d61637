"""Examines the tables of near-duplicates: against the texts that are stored, and each other."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from index.doctor_store import open_for_reading
from index.errors import StoreError
from index.family_tables import follow_rule
from index.findings import Finding
from index.near_copies import band_keys, sign, unpack

_TEXTS = """
SELECT t.text_id, t.signature, (
    SELECT d.text FROM documents d WHERE d.content_hash = t.content_hash LIMIT 1
) FROM texts t WHERE t.text_id > ? ORDER BY t.text_id LIMIT 256"""
_BANDS = """
SELECT text_id, band FROM text_bands ORDER BY text_id"""
_ONE_WAY = """
SELECT count(*) FROM text_links l WHERE NOT EXISTS (
    SELECT 1 FROM text_links b WHERE b.text_id = l.other AND b.other = l.text_id
)"""


def examine_families(path: Path) -> Iterator[Finding]:
    """Compare signatures with texts, bands with signatures, and families with links.

    Texts that have not been looked at yet are no finding, nor are tables of another rule, which
    are made again when the store is opened for writing.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    with closing(open_for_reading(path)) as connection:
        try:
            problem = _first_problem(connection)
        except (sqlite3.DatabaseError, StoreError, TypeError, ValueError) as error:
            problem = str(error)
    if problem:
        yield Finding("families", problem, "find the families again")


def _first_problem(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong, or None."""
    connection.execute("BEGIN")  # one state for all that is compared
    if not follow_rule(connection):
        return None
    held: dict[int, set[int]] = {}
    for text_id, band in connection.execute(_BANDS):
        held.setdefault(text_id, set()).add(band)
    last = 0
    while rows := connection.execute(_TEXTS, (last,)).fetchall():
        for text_id, packed, text in rows:
            if text is None:
                return f"text {text_id} is that of no document"
            signature = unpack(packed)
            if signature.tolist() != sign(text).tolist():
                return f"the signature of text {text_id} is not that of its text"
            if held.pop(text_id, set()) != set(band_keys(signature)):
                return f"the bands of text {text_id} are not those of its signature"
        last = rows[-1][0]
    if held:
        return f"there are bands of {len(held)} texts that are not there, {min(held)} first"
    return _wrong_families(connection)


def _wrong_families(connection: sqlite3.Connection) -> str | None:
    (one_way,) = connection.execute(_ONE_WAY).fetchone()
    if one_way:
        return f"{one_way} links lead one way only"
    families = dict(connection.execute("SELECT text_id, family FROM texts"))
    links: dict[int, list[int]] = {}
    for text_id, other in connection.execute("SELECT text_id, other FROM text_links"):
        links.setdefault(text_id, []).append(other)
    if unknown := links.keys() - families.keys():
        return f"there are links of {len(unknown)} texts that are not there, {min(unknown)} first"
    seen: set[int] = set()
    for text_id in sorted(families):
        if text_id in seen:
            continue
        seen.add(text_id)
        waiting = [text_id]
        while waiting:
            one = waiting.pop()
            if families[one] != text_id:
                return f"text {one} is in family {families[one]}, not in that of text {text_id}"
            new = [other for other in links.get(one, ()) if other not in seen]
            seen.update(new)
            waiting += new
    return None
