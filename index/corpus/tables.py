"""Rows of tables, in files or in databases, as records of JSON values."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from index.corpus.records import JSON_TYPES
from index.errors import CorpusError, DocumentError

ID_COLUMNS = ("id", "_id")


def check_columns(names: Sequence[str]) -> None:
    """Check that a table has the columns of documents.

    Raises:
        CorpusError: one is missing, or there are two of a name.
    """
    having = f"(it has {', '.join(names) or 'none'})"
    if not set(ID_COLUMNS) & set(names):
        raise CorpusError(f"has no column id {having}")
    if "text" not in names:
        raise CorpusError(f"has no column text {having}")
    for name in names:
        if names.count(name) > 1:
            raise CorpusError(f"has two columns {name}")


def record_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a record of JSON values; columns without a value (NULL) are left out.

    Dates and times become text of ISO 8601. `metadata` may be text of JSON.

    Raises:
        DocumentError: names the column whose value JSON does not have.
    """
    record = {name: _plain(name, value) for name, value in row.items() if value is not None}
    if isinstance(record.get("metadata"), str):
        try:
            record["metadata"] = json.loads(record["metadata"])
        except (ValueError, RecursionError) as error:
            raise DocumentError("metadata", f"is not JSON: {error}") from error
    return record


def _plain(column: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(column, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(column, item) for item in value]
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (float, Decimal)) and not math.isfinite(value):
        raise DocumentError(column, f"is {value}, which JSON does not have")
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise DocumentError(column, "is binary, or text that is not UTF-8")
    if type(value) not in JSON_TYPES:
        raise DocumentError(column, f"is {type(value).__name__}, which JSON does not have")
    return value
