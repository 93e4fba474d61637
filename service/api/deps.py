"""Dependencies of the routes, as annotated aliases."""

from typing import Annotated

from fastapi import Depends, Request

from service.documents import follow_database
from service.engine import Collection, Engine, unready_because
from service.errors import NotReadyError


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
        NotReadyError: the service is still starting, an encoder thread has died, or no collection
            can be served.
    """
    reason = unready_because(engine)
    if reason is not None:
        raise NotReadyError(reason)
    return engine


EngineDep = Annotated[Engine, Depends(get_engine)]


async def get_open_collection(request: Request, engine: OpenEngineDep) -> Collection:
    """Return the collection of a request, for what can be answered while it is not well.

    Raises:
        CollectionNotFoundError: there is none of its name.
        NotReadyError: it could not be opened.
    """
    used: Collection | None = getattr(request.state, "used", None)  # stays open for the request
    return engine.collections.find(request.state.collection) if used is None else used


OpenCollectionDep = Annotated[Collection, Depends(get_open_collection)]


async def get_collection(_: EngineDep, collection: OpenCollectionDep) -> Collection:
    """Return the collection of a request, if it and the engine are ready.

    Raises:
        DatabaseUnavailableError: the documents are in a database that does not answer in time.
        NotReadyError: the service is not ready, or the store was found to be damaged.
        StoreError: the local copy of the database could not follow it.
    """
    if collection.data.damage is not None:
        raise NotReadyError(collection.data.damage)
    await follow_database(collection)
    return collection


CollectionDep = Annotated[Collection, Depends(get_collection)]


async def admit(engine: EngineDep) -> None:
    """Require a ready engine; `service.api.http.admission` admitted the request already.

    Raises:
        NotReadyError: the service is not ready.
    """


Admitted = Depends(admit)
