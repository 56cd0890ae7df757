"""The loops that lay values one behind the other for Arrow, compiled by numba."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tidelog.protocol.records.compiling import BYTES, COLUMN, INT, OFFSETS, ROOM, kernel

_INT32_MAX: Final = 2**31 - 1


@kernel(INT, COLUMN, OFFSETS)
def lay_out(sizes: Any, offsets: Any) -> Any:
    """Where each value begins, and the end of the last; the bytes of all, or -1 when 32 bits do not hold it."""
    if offsets.shape[0] != sizes.shape[0] + 1:
        return np.int64(-1)
    total = np.int64(0)
    offsets[0] = 0
    for row in range(sizes.shape[0]):
        if sizes[row] > 0:
            if sizes[row] > _INT32_MAX - total:
                return np.int64(-1)
            total += sizes[row]
        offsets[row + 1] = total
    return total


@kernel(INT, BYTES, COLUMN, COLUMN, OFFSETS, ROOM)
def gather(data: Any, starts: Any, sizes: Any, offsets: Any, out: Any) -> Any:
    """The bytes of all values; 0, or -1 when one does not lie within data or out."""
    if starts.shape[0] != sizes.shape[0] or offsets.shape[0] != sizes.shape[0] + 1:
        return -1
    for row in range(sizes.shape[0]):
        size = sizes[row]
        if size <= 0:
            continue
        start = starts[row]
        target = np.int64(offsets[row])
        if start < 0 or size > data.shape[0] - start or target < 0 or size > out.shape[0] - target:
            return -1
        for index in range(size):
            out[target + index] = data[start + index]
    return 0
