"""Paging: the size of a page, and opaque cursors."""

import base64
import json
import re
from typing import Annotated, Any

from fastapi import Query
from pydantic import AfterValidator

MAX_PAGE, DEFAULT_PAGE = 1_000, 100
_VERSION = 1
# Except those that stand for the bytes of a damaged id.
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_INVALID = "is not a cursor of this service"


def write_cursor(last: str) -> str:
    """Return the cursor of the page after the document of this id."""
    content = json.dumps([_VERSION, last]).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the id that a cursor was made of.

    Raises:
        ValueError: it is not a result of `write_cursor`.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        content: Any = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as error:
        raise ValueError(_INVALID) from error
    match content:
        case [int(version), str(last)] if version == _VERSION and not _SURROGATE.search(last):
            return last
    raise ValueError(_INVALID)


Cursor = Annotated[
    str,
    AfterValidator(read_cursor),
    Query(
        max_length=8_192,
        description="`next_cursor` of the previous page; by default, the first page.",
        openapi_examples={"some": {"value": "WzEsICJhcnRpY2xlcy9iZWVzIl0"}},
    ),
]

PageSize = Annotated[
    int,
    Query(
        ge=1,
        le=MAX_PAGE,
        description="Documents on a page.",
        openapi_examples={"some": {"value": DEFAULT_PAGE}},
    ),
]
