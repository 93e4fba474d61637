"""Keeping the memory of a long-lived process flat under documents of every length."""

import ctypes

_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_THRESHOLD_BYTES = 4 * 2**20


def return_large_blocks() -> bool:
    """Make glibc give every block of 4 MiB or more back to the system when it is freed.

    By itself glibc raises that bound to the largest block ever freed, up to 32 MiB. The buffers of
    books then come from heaps that the small objects of other threads keep from shrinking, and the
    process grows for as long as a larger book comes (measured: benchmarks/bench_load.py).

    Returns:
        Whether there was a glibc to tell.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES))
