"""The times that are none in ListOffsets: they name a place in a log instead."""

from __future__ import annotations

from typing import Final

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""The record with the highest timestamp, not necessarily the last one."""
