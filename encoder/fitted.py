"""What was fitted, in files of JSON: dataclasses, with a format, and a digest as their version."""

import hashlib
import json
from dataclasses import asdict
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

VERSION_DIGITS = 12
T = TypeVar("T")


def version_of(content: dict[str, Any]) -> str:
    """Return a short digest of the whole content of a file."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_DIGITS]


def fields_of(fitted: Any, form: int) -> dict[str, Any]:
    """Return the content of the file of a dataclass, but for its version."""
    return {"format": form, **asdict(fitted)}


def parse(data: bytes, kind: type[T], form: int) -> tuple[T, dict[str, Any]]:
    """Make a dataclass of JSON; return it, and all fields that the file has.

    Raises:
        ValueError: the JSON is damaged, of another format, or has a wrong value.
    """
    try:
        content = json.loads(data)
        if content["format"] != form:
            raise ValueError(f"format {content['format']!r} is not {form}")
        return TypeAdapter(kind).validate_json(data, strict=True), content
    except ValidationError as error:
        wrong = error.errors()[0]
        field = ".".join(map(str, wrong["loc"]))
        raise ValueError(f"{field}: {wrong['msg']}") from error
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(repr(error)) from error
