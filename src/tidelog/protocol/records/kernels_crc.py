"""The CRCs of many small batches in one call, compiled by numba."""

from __future__ import annotations

from typing import Any, Final

from tidelog.protocol.records.compiling import BYTES, COLUMN, INT, kernel
from tidelog.protocol.records.machine import crc32c

_ATTRIBUTES_OFFSET: Final = 21
_LOG_OVERHEAD: Final = 12


@kernel(INT, BYTES, COLUMN, COLUMN, COLUMN)
def wrong_crc(data: Any, positions: Any, lengths: Any, crcs: Any) -> Any:
    """The first batch whose CRC is another one, -1 when there is none."""
    for row in range(min(positions.shape[0], lengths.shape[0], crcs.shape[0])):
        position, length = positions[row], lengths[row]
        if position < 0 or length < _ATTRIBUTES_OFFSET - _LOG_OVERHEAD:
            return row
        if length > data.shape[0] - _LOG_OVERHEAD - position:
            return row
        if crc32c(data, position + _ATTRIBUTES_OFFSET, position + _LOG_OVERHEAD + length) != crcs[row]:
            return row
    return -1
