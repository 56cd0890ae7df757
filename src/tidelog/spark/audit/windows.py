"""Records and rows by windows of time.

The header of a batch has the first and the greatest of the producers' times. A producer whose records within one batch
are not in the order of their times can have one in an earlier window than either, and only decoding shows it. So the
log is counted by headers first; where that does not agree with the table although the offsets do, the partition is
read again with every such batch decoded (`may_straddle(..., every_time=True)`): agreement costs nothing, suspicion
costs a decode.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np

HOUR_MS = 3_600_000


class Times(Protocol):
    """What is asked of the headers of batches."""

    records: Any
    base_time: Any
    max_time: Any

    @property
    def has_own_time(self) -> Any: ...

    @property
    def has_horizon(self) -> Any: ...


class WindowCounts:
    """How many fall into which window, by its beginning in ms since 1970."""

    def __init__(self, window_ms: int) -> None:
        if window_ms < 1:
            raise ValueError(f"window_ms is {window_ms}; a window has at least 1 ms")
        self.window_ms = window_ms
        self.counts: Counter[int] = Counter()

    def add(self, times_ms: Any, numbers: Any) -> None:
        """Times of records, or of several each where numbers are given."""
        if not len(times_ms):
            return
        windows, index = np.unique(times_ms // self.window_ms, return_inverse=True)
        totals = np.zeros(len(windows), np.int64)
        np.add.at(totals, index, 1 if numbers is None else numbers)
        for window, total in zip(windows.tolist(), totals.tolist(), strict=True):
            self.counts[window * self.window_ms] += total

    def may_straddle(self, times: Times, every_time: bool) -> Any:
        """Whether the records of each batch may be of more than one window, by what the header says."""
        differ = times.base_time // self.window_ms != times.max_time // self.window_ms
        if every_time:
            differ |= times.records > 1
        return times.has_own_time & (differ | times.has_horizon)


def window_name(begin_ms: int) -> str:
    """As a time; records that carry none have -1."""
    if begin_ms < 0:
        return "before 1970"
    try:
        moment = datetime.fromtimestamp(begin_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may send any number as a time
        return f"{begin_ms} ms"
    text = moment.isoformat(timespec="seconds" if begin_ms % 1000 == 0 else "milliseconds")
    return text.replace("+00:00", "Z")
