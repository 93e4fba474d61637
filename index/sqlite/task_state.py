"""What the maintenance of a store needs to know after a restart: one value a task.

A value that is missing or damaged reads as None, and the task then repeats its work: only time
depends on it.
"""

import json
import sqlite3
from typing import Any

from index.sqlite.connections import SQLiteConnections

MAINTENANCE_SCHEMA = """
CREATE TABLE maintenance_state (
    task TEXT PRIMARY KEY,
    state TEXT NOT NULL
) WITHOUT ROWID"""

LOG_START = "log start"
REJECTED_RETRAINING = "rejected retraining"

_READ = """
SELECT state FROM maintenance_state WHERE task = ?"""
_WRITE = """
INSERT OR REPLACE INTO maintenance_state (task, state) VALUES (?, ?)"""


class MaintenanceState:
    """The maintenance state of an open store. Safe to use from many threads.

    Every call raises StoreError where the file cannot be read or written.
    """

    def __init__(self, connections: SQLiteConnections) -> None:
        """Use the connections of a store; `SQLiteDocumentStore.maintenance` is one."""
        self._connections = connections

    def read(self, task: str) -> Any:
        """Return the value of a task as it was written; None where there is none."""
        with self._connections.reading() as connection:
            return read_state(connection, task)

    def write(self, task: str, value: object) -> None:
        """Write a value that JSON can represent, durable at return."""
        with self._connections.writing() as connection:
            write_state(connection, task, value)


def read_state(connection: sqlite3.Connection, task: str) -> Any:
    """Return the value of a task, inside a transaction; None where it is missing or damaged."""
    row = connection.execute(_READ, (task,)).fetchone()
    try:
        return None if row is None else json.loads(row[0])
    except (TypeError, ValueError):
        return None


def read_count(connection: sqlite3.Connection, task: str) -> int | None:
    """Return the value of a task that is a count; None where it is missing or damaged."""
    value = read_state(connection, task)
    return value if isinstance(value, int) and value >= 0 else None


def write_state(connection: sqlite3.Connection, task: str, value: object) -> None:
    """Write the value of a task, inside a transaction."""
    connection.execute(_WRITE, (task, json.dumps(value)))
