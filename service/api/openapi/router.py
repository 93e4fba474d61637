"""The router that every module of routes has."""

from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute


def _name(route: APIRoute) -> str:
    return route.name


class Router(APIRouter):
    """A router whose operations have the names of their functions.

    The application takes its routes as they are. `FastAPI.include_router` would make each of them
    anew at the first request, for a fifth of a second, and look for the route of a request twice.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of `APIRouter`."""
        super().__init__(generate_unique_id_function=_name, **options)
