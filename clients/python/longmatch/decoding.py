"""Read an answer into the data class that it is declared to be."""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import httpx

from longmatch.errors import ResponseError, connection_failed
from longmatch.retries import Caller
from longmatch.steps import Emit, Emitting, Read, Reply, Request, Steps

T = TypeVar("T")

_Read = Callable[[Any, str], Any]


def read_reply(kind: type[T], reply: Reply) -> T:
    """Return the JSON of a reply as an object of a class."""
    return read_value(kind, read_json(reply.content))


def read_pages(
    caller: Caller, path: str, page_size: int | None, name: str, kind: type[T]
) -> Emitting[T]:
    """Emit the items of a list, page by page; each request has the full time of a call.

    Args:
        caller: of the call.
        path: of the list, percent-encoded.
        page_size: items in one request; None leaves it to the server.
        name: of the field that holds the items of a page.
        kind: of an item.
    """
    cursor: str | None = None
    while True:
        params = {"limit": page_size, "cursor": cursor}
        reply = yield from caller.again().ask(Request(method="GET", path=path, params=params))
        for item in read_field(list[kind], name, reply):  # type: ignore[valid-type]
            yield Emit(item)
        cursor = read_field(cast(type[str | None], str | None), "next_cursor", reply)
        if cursor is None:
            return


def fetch(caller: Caller, kind: type[T], request: Request) -> Steps[T]:
    """Send a request, and return the JSON of the reply as an object of a class."""
    return read_reply(kind, (yield from caller.ask(request)))


def fetch_field(caller: Caller, kind: type[T], name: str, request: Request) -> Steps[T]:
    """Send a request, and return one field of the JSON of the reply."""
    return read_field(kind, name, (yield from caller.ask(request)))


def read_field(kind: type[T], name: str, reply: Reply) -> T:
    """Return one field of the JSON object that a reply holds."""
    content = read_json(reply.content)
    if not isinstance(content, dict) or name not in content:
        raise ResponseError(f"answer has no {name}")
    return read_value(kind, content[name], f"answer.{name}")


def read_json(content: bytes) -> Any:
    """Return the JSON of some bytes."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise ResponseError("the answer is not JSON: is this the URL of a Longmatch?") from error


def read_value(kind: type[T], value: Any, where: str = "answer") -> T:
    """Return a JSON value as an object of a class."""
    return cast(T, _reader(cast(Any, kind))(value, where))


def read_part(reply: Reply) -> Steps[bytes | None]:
    """Return the next bytes of a streamed reply; None at its end.

    Raises:
        ConnectionFailedError: the connection broke.
    """
    try:
        part: bytes | None = yield Read(reply)
    except httpx.TransportError as error:
        raise connection_failed(error) from error
    return part


@cache
def _reader(kind: Any) -> _Read:
    origin = get_origin(kind)
    if kind is Any:
        return lambda value, where: value
    if is_dataclass(kind):
        return _class_reader(cast(type, kind))
    if origin is list:
        return _list_reader(*get_args(kind))
    if origin in (dict, Mapping):
        return _dict_reader(get_args(kind)[1])
    if origin in (Union, types.UnionType):
        [inner] = [arg for arg in get_args(kind) if arg is not types.NoneType]
        read = _reader(inner)
        return lambda value, where: None if value is None else read(value, where)
    return _scalar_reader(kind)


def _class_reader(kind: type) -> _Read:
    hints = get_type_hints(kind)
    readers = {
        field.name: (_reader(hints[field.name]), field.default is MISSING)
        for field in fields(cast(Any, kind))
    }

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise ResponseError(f"{where} is not an object")
        found = {}
        for name, (reader, required) in readers.items():
            if name in value:
                found[name] = reader(value[name], f"{where}.{name}")
            elif required:
                raise ResponseError(f"{where} has no {name}")
        return kind(**found)

    return read


def _list_reader(inner: Any) -> _Read:
    reader = _reader(inner)

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise ResponseError(f"{where} is not a list")
        return [reader(item, where) for item in value]

    return read


def _dict_reader(inner: Any) -> _Read:
    reader = _reader(inner)

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise ResponseError(f"{where} is not an object")
        return {name: reader(item, f"{where}.{name}") for name, item in value.items()}

    return read


def _scalar_reader(kind: type) -> _Read:
    def read(value: Any, where: str) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise ResponseError(f"{where} is not {kind.__name__}")
        return value

    return read
