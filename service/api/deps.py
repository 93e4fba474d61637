"""What a route needs, as annotated aliases, so that its signature reads like a sentence."""

from email.message import Message
from typing import Annotated

from fastapi import Depends, Request

from service.engine import Engine, is_ready
from service.errors import NotReadyError, UnsupportedMediaTypeError


async def get_open_engine(request: Request) -> Engine:
    """Return the engine of the application.

    Raises:
        NotReadyError: it is not open yet.
    """
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise NotReadyError
    return engine


OpenEngineDep = Annotated[Engine, Depends(get_open_engine)]


async def get_engine(engine: OpenEngineDep) -> Engine:
    """Return the engine, which can work.

    Raises:
        NotReadyError: a part of it has died.
    """
    if not is_ready(engine):
        raise NotReadyError("an encoder thread does not run")
    return engine


EngineDep = Annotated[Engine, Depends(get_engine)]


async def admit(engine: EngineDep) -> None:
    """Let in whom the door let in: `service.api.http.admission` counted the request before it was
    read.

    Raises:
        NotReadyError: the service cannot work.
    """


async def require_json(request: Request) -> None:
    """Do nothing when the body is declared as JSON.

    Raises:
        UnsupportedMediaTypeError: it is not.
    """
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    kind, subtype = message.get_content_maintype(), message.get_content_subtype()
    if kind != "application" or not (subtype == "json" or subtype.endswith("+json")):
        raise UnsupportedMediaTypeError


Admitted = Depends(admit)
JSONBody = Depends(require_json)
