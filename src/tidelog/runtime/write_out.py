"""sync_file_range(2): what was appended to a large file is given to the disk some megabytes at a time, before a sync
makes it durable. A sync of a gigabyte at once fills the disk's queue, and whoever writes to the same file system then
waits behind it, for 30 to 80 ms. Linux only: optional, and no sync by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

LARGE_BYTES: Final = 32 << 20
"""Less is left to the sync."""
PORTION_BYTES: Final = 8 << 20
_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4


def find_write_out() -> Callable[[int, int, int], None] | None:
    """(descriptor, position, length), waiting until the disk has it. An error is told once, here or by the sync that
    follows: whoever calls it must believe it."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (ImportError, OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def write_out(fd: int, position: int, length: int) -> None:
        if function(fd, position, length, _WAIT_BEFORE | _WRITE | _WAIT_AFTER) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return write_out
