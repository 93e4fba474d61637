"""The process: memory is returned."""

import platform
import subprocess
import sys
from pathlib import Path

from service.threads import cap_malloc_threshold

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
    result = subprocess.run(
        [sys.executable, "-c", HOLES.format(capped=capped)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(result.stdout) / 1024


def test_there_is_something_to_tell_on_glibc_alone() -> None:
    assert cap_malloc_threshold() is GLIBC


def test_large_blocks_are_given_back() -> None:
    if sys.platform == "linux" and GLIBC:
        assert resident_mib(capped=True) < resident_mib(capped=False) - 100
