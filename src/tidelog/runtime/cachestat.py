"""cachestat(2), which Python does not have: how much of a file is in memory. Linux has it since 6.5: optional."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable
from typing import Final

_NUMBER: Final = 451
"""The same on every architecture that came to Linux's common numbers."""


def find_cachestat() -> Callable[[int, int, int], bool] | None:
    """(descriptor, position, length) -> whether all of it is in memory; OSError when this file cannot tell. None where
    the system has no such call."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).syscall
    except (ImportError, OSError, AttributeError):
        return None
    # One of each for all calls: it is asked in the loop's thread only.
    span, counts, page = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)(), mmap.PAGESIZE
    span_at, counts_at = ctypes.byref(span), ctypes.byref(counts)

    def is_cached(fd: int, position: int, length: int) -> bool:
        span[0], span[1] = position, length
        if call(_NUMBER, fd, span_at, counts_at, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        pages: int = (position + length - 1) // page - position // page + 1
        return counts[0] >= pages

    try:
        is_cached(-1, 0, 1)
    except OSError as error:
        return is_cached if error.errno == errno.EBADF else None
    return None
