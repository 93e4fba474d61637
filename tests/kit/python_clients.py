"""Both clients of `clients/python`, used in the same way."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from longmatch import AsyncClient, Client


class Blocked:
    """An `AsyncClient` that blocks: its coroutines are run, what it iterates is a list."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self.client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            given = method(*args, **kwargs)
            if inspect.isawaitable(given):
                return self._runner.run(_awaited(given))
            if isinstance(given, AsyncClient):
                return Blocked(given, self._runner)
            return self._runner.run(_listed(given))

        return call


async def _awaited(given: Any) -> Any:
    return await given


async def _listed(given: Any) -> list[Any]:
    return [item async for item in given]


@pytest.fixture(params=[Client, AsyncClient])
def make_longmatch(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Return a maker of clients, of the blocking and of the awaiting kind in turn."""
    made: list[Any] = []
    with asyncio.Runner() as runner:

        def make(url: str, **options: Any) -> Any:
            client = request.param(url, **options)
            made.append(client if isinstance(client, Client) else Blocked(client, runner))
            return made[-1]

        yield make
        for client in made:
            with suppress(RuntimeError):
                client.close()
