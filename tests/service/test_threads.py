"""Threads, garbage and memory of the process."""

import asyncio
import platform
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.errors import ShuttingDownError
from service.threads import cap_malloc_threshold, run_in

COUNT = """
import faiss, numpy
from threadpoolctl import threadpool_info
from service.threads import limit_numpy_threads

def counts():
    return {
        "numpy" in pool["filepath"]: pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }

before = counts()
limit_numpy_threads()
after = counts()
assert after[True] == 1, after
assert after.get(False) == before.get(False), after
"""


def test_numpy_multiplies_in_the_calling_thread() -> None:
    subprocess.run([sys.executable, "-c", COUNT], check=True)


GLIBC = platform.libc_ver()[0] == "glibc"
# Frees a block of 24 MiB, which raises glibc's own bound, then keeps a small object behind each of
# two hundred blocks of 5 MiB: from a heap these would leave holes, mapped ones are gone when freed.
HOLES = """
import ctypes
from service.threads import cap_malloc_threshold
if {capped}: cap_malloc_threshold()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
def filled(size):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    return block
libc.free(filled(24 * 2**20))
blocks = [(filled(5 * 2**20), filled(64)) for _ in range(40)]
for large, _ in blocks[:-1]:
    libc.free(large)
print(next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmRSS")))
"""


def resident_mib(*, capped: bool) -> float:
    command = [sys.executable, "-c", HOLES.format(capped=capped)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout) / 1024


def test_large_blocks_are_given_back() -> None:
    assert cap_malloc_threshold() is GLIBC
    if sys.platform == "linux" and GLIBC:
        assert resident_mib(capped=True) < resident_mib(capped=False) - 100


@pytest.mark.parametrize(
    ("ends", "error"), [("executor", ShuttingDownError), ("caller", asyncio.CancelledError)]
)
def test_a_call_that_is_never_made_says_why(ends: str, error: type[BaseException]) -> None:
    async def call() -> None:
        go_on = threading.Event()
        with ThreadPoolExecutor(1) as executor:
            executor.submit(go_on.wait)
            waiting = asyncio.create_task(run_in(executor, time.monotonic))
            await asyncio.sleep(0)
            if ends == "executor":
                executor.shutdown(wait=False, cancel_futures=True)
            else:
                waiting.cancel()
            try:
                with pytest.raises(error):
                    await waiting
            finally:
                go_on.set()

    asyncio.run(call())
