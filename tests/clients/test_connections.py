"""Connections of both clients that are cut, left, shared or cancelled, with the real server."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from longmatch import AsyncClient, Client, ConnectionFailedError, Document, Retry

from tests.clients.conftest import TEXTS
from tests.kit.fault_proxy import Cut, Drop, FaultProxy
from tests.kit.process_fixtures import Server


def test_leaving_an_export_early_frees_its_connection(server: Server) -> None:
    with Client(server.url, max_connections=1) as client:
        for _ in client.export():
            break
        assert client.is_alive()

    async def leave() -> None:
        async with AsyncClient(server.url, max_connections=1) as client:
            documents = client.export()
            async for _ in documents:
                break
            await documents.aclose()
            assert await client.is_alive()

    asyncio.run(leave())


def test_an_export_that_is_cut_is_an_error(
    make_longmatch: Callable[..., Any], proxy: FaultProxy
) -> None:
    client = make_longmatch(proxy.url)
    proxy.will(Drop(), Cut(150))
    with pytest.raises(ConnectionFailedError):
        list(client.export())
    assert len(proxy.seen) == 2


def test_a_write_whose_answer_is_lost_is_done_once(
    make_longmatch: Callable[..., Any], proxy: FaultProxy
) -> None:
    client = make_longmatch(proxy.url, retry=Retry(first_seconds=0.01))
    proxy.will(Drop(passed_on=True))
    answer = client.index([Document("once", "Snow falls on the hills.")])
    unchanged = [document.unchanged for document in answer.documents]
    assert unchanged == [False]  # the first answer, again
    before = len(list(client.jobs()))
    proxy.will(Drop(passed_on=True), Drop(read=False))
    upload = client.upload([Document("twice", "Rain falls on the sea.")])
    assert len(list(client.jobs())) == before + 1
    assert client.wait_for_job(upload.id).indexed == 1
    proxy.will(Drop(passed_on=True))
    for name in ("once", "twice"):
        client.delete(name)


def test_threads_and_tasks_share_a_client(server: Server) -> None:
    texts = {name: text for name, text in TEXTS.items() if not name.startswith("bees")}  # copies
    with Client(server.url, max_connections=3) as client, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: client.match(text).matches[0].id, texts.values()))
    assert found == list(texts)

    async def together() -> list[str]:
        async with AsyncClient(server.url, max_connections=3) as client:
            answers = await asyncio.gather(*(client.match(text) for text in texts.values()))
            return [answer.matches[0].id for answer in answers]

    assert asyncio.run(together()) == found


@pytest.mark.parametrize("moment", [*range(0, 25, 2), None])
def test_cancelling_a_task_at_any_moment_frees_its_connection(
    proxy: FaultProxy, moment: int | None
) -> None:
    """Also while it waits to repeat the request."""

    async def cancel() -> None:
        retry = Retry(attempts=50, first_seconds=10.0)
        async with AsyncClient(proxy.url, max_connections=1, retry=retry, timeout=120) as client:
            proxy.will(*[Drop()] * (50 if moment is None else 0))
            task = asyncio.ensure_future(client.match("a"))
            for _ in range(moment or 0):
                await asyncio.sleep(0)
            while moment is None and not proxy.seen:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.will()
            assert await client.is_alive()

    asyncio.run(cancel())
