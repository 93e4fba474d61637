"""The tables of standing queries, and how rows become records."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32
from encoder.blocks import Receipt
from index.search.records import Bounds
from index.sqlite.connections import DatabaseFormat, SQLiteConnections
from index.store.filters import filter_from_json, filter_to_json
from service.standing.query import (
    Delivery,
    Event,
    Found,
    Interest,
    QueryText,
    StandingQuery,
    Webhook,
)

STANDING_FILE = "standing.sqlite3"

# Numbers are never reused (AUTOINCREMENT): clients resume after the last event that they have seen.
# `space` is the fingerprint of the vectors whose ids `scanned` is one of. The columns of `queries`
# that are long come last.
_SCHEMA = """
CREATE TABLE meta (
    space TEXT NOT NULL
);
CREATE TABLE queries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    interest TEXT NOT NULL,
    created TEXT NOT NULL,
    scanned INTEGER NOT NULL,
    detail TEXT,
    fingerprint TEXT,
    receipt TEXT,
    url TEXT,
    secret TEXT,
    delivered INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    retry_at REAL NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    failure TEXT,
    paused INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL,
    block_count INTEGER,
    vector BLOB,
    blocks BLOB,
    text TEXT
);
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    query INTEGER NOT NULL REFERENCES queries ON DELETE CASCADE,
    created TEXT NOT NULL,
    document TEXT NOT NULL,
    title TEXT NOT NULL,
    score REAL NOT NULL,
    scored_as TEXT NOT NULL,
    probability REAL,
    false_positive_rate REAL
);
CREATE INDEX events_by_query ON events (query);
INSERT INTO meta VALUES ('')"""
_STANDING = DatabaseFormat("standing queries", 0x4C4D5351, 2, _SCHEMA, private=True)

QUERY_COLUMNS = (
    "number, id, interest, created, scanned, detail, fingerprint, receipt, url, secret, "
    "delivered, attempts, retry_at, failed, failure, paused, revision"
)
_OF_TEXTS = ("fingerprint", "receipt", "block_count", "vector", "blocks", "text")
TEXT_COLUMNS = ", ".join(_OF_TEXTS)
EVENT_COLUMNS = (
    "events.number, queries.id, events.created, document, title, score, scored_as, probability, "
    "false_positive_rate"
)


def open_standing_tables(path: Path, *, read_only: bool = False) -> SQLiteConnections:
    """Open the tables; create them if there is no file.

    Raises:
        StoreError: the file cannot be created or is not a database of standing queries.
    """
    return SQLiteConnections(path, read_only=read_only, kind=_STANDING)


def interest_to_json(interest: Interest) -> str:
    """Return what a query looks for as JSON."""
    where = None if interest.where is None else filter_to_json(interest.where)
    return json.dumps(
        {
            "document_id": interest.document_id,
            "title": interest.title,
            "mode": interest.mode,
            "bounds": asdict(interest.bounds),
            "where": where,
        }
    )


def to_query(row: tuple[Any, ...]) -> StandingQuery:
    """Return the query of a row of `QUERY_COLUMNS`."""
    number, name, interest, created, scanned, detail, fingerprint, receipt, url, secret = row[:10]
    delivered, attempts, retry_at, failed, failure, paused, revision = row[10:]
    return StandingQuery(
        number=number,
        id=name,
        interest=_to_interest(json.loads(interest)),
        created=created,
        scanned=scanned,
        detail=detail,
        fingerprint=fingerprint,
        receipt=None if receipt is None else Receipt(**json.loads(receipt)),
        webhook=None if url is None else Webhook(url, secret),
        delivery=Delivery(delivered, attempts, retry_at, bool(failed), failure),
        paused=bool(paused),
        revision=revision,
    )


def to_event(row: tuple[Any, ...]) -> Event:
    """Return the event of a row of `EVENT_COLUMNS`."""
    number, query_id, created, *found = row
    return Event(number, query_id, created, Found(*found))


def from_text(text: QueryText | None) -> dict[str, Any]:
    """Return the columns of an encoded text; all are null for a stored document."""
    if text is None:
        return dict.fromkeys(_OF_TEXTS)
    return {
        "fingerprint": text.fingerprint,
        "receipt": json.dumps(asdict(text.receipt)),
        "block_count": len(text.blocks),
        "vector": text.vector.astype("<f4").tobytes(),
        "blocks": text.blocks.astype("<f4").tobytes(),
        "text": text.text,
    }


def to_text(row: tuple[Any, ...]) -> QueryText:
    """Return the text of a row of `TEXT_COLUMNS`."""
    fingerprint, receipt, count, vector, blocks, text = row
    return QueryText(
        text,
        _numbers(vector),
        _numbers(blocks).reshape(count, -1),
        Receipt(**json.loads(receipt)),
        fingerprint,
    )


def _to_interest(content: dict[str, Any]) -> Interest:
    where = content["where"]
    return Interest(
        document_id=content["document_id"],
        title=content["title"],
        mode=content["mode"],
        bounds=Bounds(**content["bounds"]),
        where=None if where is None else filter_from_json(where),
    )


def _numbers(content: bytes) -> Float32:
    return np.frombuffer(content, dtype="<f4").astype(np.float32)
