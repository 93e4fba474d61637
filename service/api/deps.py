"""Dependencies of the routes, as annotated aliases.

They depend on the request alone: FastAPI resolves each dependency anew in every request.
"""

from typing import Annotated

from fastapi import Depends, Request

from service.engine import Collection, Engine, unready_because
from service.errors import NotReadyError


async def get_open_engine(request: Request) -> Engine:
    """Return the engine of the application.

    Raises:
        NotReadyError: the service is still starting.
    """
    return _open_engine(request)


OpenEngineDep = Annotated[Engine, Depends(get_open_engine)]


async def get_engine(request: Request) -> Engine:
    """Return the engine if it is ready.

    Raises:
        NotReadyError: the service is still starting, an encoder thread has died, or no collection
            can be served.
    """
    return _ready_engine(request)


EngineDep = Annotated[Engine, Depends(get_engine)]


async def get_open_collection(request: Request) -> Collection:
    """Return the collection of a request, for what can be answered while it is not well.

    Raises:
        CollectionNotFoundError: there is none of its name.
        NotReadyError: it could not be opened.
    """
    return _open_collection(request, _open_engine(request))


OpenCollectionDep = Annotated[Collection, Depends(get_open_collection)]


async def get_collection(request: Request) -> Collection:
    """Return the collection of a request, if it and the engine are ready.

    Raises:
        NotReadyError: the service is not ready, or the store was found to be damaged.
    """
    collection = _open_collection(request, _ready_engine(request))
    if collection.data.damage is not None:
        raise NotReadyError(collection.data.damage)
    return collection


CollectionDep = Annotated[Collection, Depends(get_collection)]


async def admit(request: Request) -> None:
    """Require a ready engine; `service.api.http.admission` admitted the request already.

    Raises:
        NotReadyError: the service is not ready.
    """
    _ready_engine(request)


Admitted = Depends(admit)


def _open_engine(request: Request) -> Engine:
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise NotReadyError
    return engine


def _ready_engine(request: Request) -> Engine:
    engine = _open_engine(request)
    reason = unready_because(engine)
    if reason is not None:
        raise NotReadyError(reason)
    return engine


def _open_collection(request: Request, engine: Engine) -> Collection:
    used: Collection | None = getattr(request.state, "used", None)  # stays open for the request
    return engine.collections.find(request.state.collection) if used is None else used
