"""numba, and how kernels are compiled: without the GIL, for the one signature that is used, once per machine.

What was compiled lies beside the source (`__pycache__`), or in the user's cache directory where that cannot be written,
or where NUMBA_CACHE_DIR says. Where none of them can be written it is compiled again by each process.

numba checks no index. A kernel checks each one itself, against the array, also where an earlier pass has looked at the
same bytes: they may lie in a mapped file or a buffer that somebody writes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.core.options import DefaultOptions

BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
ROOM: Final = types.Array(types.uint8, 1, "C")
COLUMN: Final = types.Array(types.int64, 1, "C")
TABLE: Final = types.Array(types.int64, 2, "C")
OFFSETS: Final = types.Array(types.int32, 1, "C")
INT: Final = types.int64


_OPTIONS: Final[dict[str, Any]] = {"nogil": True}
if hasattr(DefaultOptions, "_nrt"):
    # Kernels make no arrays. Without this numba counts references to those that each small function is given, which
    # takes four times as long as reading the records.
    _OPTIONS["_nrt"] = False


def kernel(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function for these types now, or takes it from the cache."""
    signature = result(*arguments)

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, cache=True, **_OPTIONS)(function)
        except (RuntimeError, OSError):
            # There is no place for the cache, or no room in it: a read-only container without a home.
            return njit(signature, **_OPTIONS)(function)

    return compiled


def helper(function: Callable[..., Any]) -> Any:
    """A function that kernels of the same file call; it becomes a part of each."""
    return njit(**_OPTIONS)(function)


def as_bytes(view: memoryview) -> Any:
    """The bytes as an array that cannot be written: one type for whatever they lie in."""
    if not len(view):
        empty = np.empty(0, np.uint8)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(view.toreadonly(), np.uint8)


def as_column(values: Any) -> Any:
    """A column as the kernels take it, whoever made it."""
    return np.require(values, np.int64, ["C", "W"])
