"""syncfs(2): one call that makes a whole file system durable, for rounds with many files. Linux only: optional."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable


def find_syncfs() -> Callable[[int], None] | None:
    """None where there is no syncfs, or where it would keep write errors to itself (Linux before 5.8)."""
    if sys.platform != "linux" or not _reports_errors(os.uname().release):
        return None
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (ImportError, OSError, AttributeError):
        return None

    def syncfs(fd: int) -> None:
        if function(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return syncfs


def _reports_errors(release: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)", release)
    return match is not None and (int(match[1]), int(match[2])) >= (5, 8)
