"""The limit on active requests, and draining them."""

import asyncio

import pytest

from service.errors import ShuttingDownError
from service.limits import Admission


def test_draining_waits_for_active_requests_and_rejects_new_ones() -> None:
    admission = Admission(5)

    async def run() -> None:
        leave = asyncio.Event()

        async def request() -> None:
            with admission.admit():
                await leave.wait()

        inside = asyncio.create_task(request())
        await asyncio.sleep(0)
        draining = asyncio.create_task(admission.drain(60))
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDownError), admission.admit():
            pytest.fail("admitted while draining")
        assert not draining.done()
        assert not await admission.drain(0)
        leave.set()
        await inside
        assert await draining

    asyncio.run(run())
