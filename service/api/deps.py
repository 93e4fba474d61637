"""Dependencies of the routes, as annotated aliases."""

from email.message import Message
from typing import Annotated

from fastapi import Depends, Request

from service.engine import Engine, unready_because
from service.errors import NotReadyError, UnsupportedMediaTypeError


async def get_open_engine(request: Request) -> Engine:
    """Return the engine of the application.

    Raises:
        NotReadyError: the service is still starting.
    """
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise NotReadyError
    return engine


OpenEngineDep = Annotated[Engine, Depends(get_open_engine)]


async def get_engine(engine: OpenEngineDep) -> Engine:
    """Return the engine if it is ready.

    Raises:
        NotReadyError: the service is still starting, an encoder thread has died, or the store was
            found to be damaged.
    """
    reason = unready_because(engine)
    if reason is not None:
        raise NotReadyError(reason)
    return engine


EngineDep = Annotated[Engine, Depends(get_engine)]


async def admit(engine: EngineDep) -> None:
    """Require a ready engine; `service.api.http.admission` admitted the request already.

    Raises:
        NotReadyError: the service is not ready.
    """


async def require_json(request: Request) -> None:
    """Require a body that is declared as JSON.

    Raises:
        UnsupportedMediaTypeError: it is declared as something else.
    """
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    kind, subtype = message.get_content_maintype(), message.get_content_subtype()
    if kind != "application" or not (subtype == "json" or subtype.endswith("+json")):
        raise UnsupportedMediaTypeError


Admitted = Depends(admit)
JSONBody = Depends(require_json)
