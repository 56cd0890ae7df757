"""What a run has counted since it began, in memory: Spark's listener and the runner write, the metrics' server reads.

Each of them is a thread of its own. Nothing here waits or touches a file: what a listener does holds up all the
other listeners of the session.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from tidelog.spark.pipeline.progress import Progress
from tidelog.spark.pipeline.state import FlowState

BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram of batch durations; whatever takes longer has a bucket too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Of one flow, since the run began."""

    batches: int = 0
    idles: int = 0  # looks at the log that found nothing new
    rows: int = 0  # that its query has read
    busy_ms: int = 0
    durations: tuple[int, ...] = field(default=(0,) * (len(BOUNDS_S) + 1))
    heard_ms: int | None = None
    progress: Progress | None = None  # of the last batch
    state: FlowState | None = None  # as the runner sees it


class Meters:
    def __init__(self, flows: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._meters = {flow: Meter() for flow in flows}

    def read(self) -> dict[str, Meter]:
        with self._lock:
            return dict(self._meters)

    def batch(self, flow: str, progress: Progress, now_ms: int) -> None:
        place = bisect_left(BOUNDS_S, progress.duration_ms / 1000)
        with self._lock:
            meter = self._meters[flow]
            counts = meter.durations
            self._meters[flow] = replace(
                meter,
                batches=meter.batches + 1,
                rows=meter.rows + progress.rows,
                busy_ms=meter.busy_ms + progress.duration_ms,
                durations=(*counts[:place], counts[place] + 1, *counts[place + 1 :]),
                heard_ms=now_ms,
                progress=progress,
            )

    def idle(self, flow: str, now_ms: int) -> None:
        """A flow that finds nothing new has nothing behind it, and does nothing just now."""
        with self._lock:
            meter = self._meters[flow]
            quiet = meter.progress and msgspec.structs.replace(
                meter.progress, lag_records=0, input_rows_per_s=0.0, processed_rows_per_s=0.0
            )
            self._meters[flow] = replace(meter, idles=meter.idles + 1, heard_ms=now_ms, progress=quiet)

    def publish(self, state: FlowState) -> None:
        with self._lock:
            self._meters[state.flow] = replace(self._meters[state.flow], state=state)
