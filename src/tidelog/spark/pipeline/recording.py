"""What the runner writes into the histories of its flows and of its runs.

A history is to look at: when the disk does not take a line, the line is missing and the flows go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from tidelog.spark.pipeline.history import TEXT_MAX, History, Line, Mark, Sample, flow_file, run_file
from tidelog.spark.pipeline.progress import Progress
from tidelog.spark.pipeline.sinks import Written
from tidelog.spark.pipeline.state import RunState
from tidelog.spark.pipeline.status import lag_of

LATE: Final = "late"
IDLE_MS: Final = 60_000


class Recorder:
    def __init__(self, work: Path, flows: Iterable[str], tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._complained = False
        self._run = History(run_file(work))
        self._flows = {flow: History(flow_file(work, flow)) for flow in flows}
        self._batches: dict[str, int] = {}  # the last one that is recorded
        self._idles: dict[str, int] = {}  # when the last idle look was, since the last batch

    def begin(self, before: RunState | None, now_ms: int, pid: int) -> None:
        """`before` is what the last run has left: one without an end was killed, or its machine was."""
        if before is not None and before.ended_ms is None:
            self._add(self._run, Mark(at_ms=before.seen_ms, what="died", text=f"pid {before.pid}"))
        self._add(self._run, Mark(at_ms=now_ms, what="started", text=f"pid {pid}"))

    def end(self, code: int, now_ms: int) -> None:
        self._add(self._run, Mark(at_ms=now_ms, what="ended", text=f"exit code {code}"))
        for history in (self._run, *self._flows.values()):
            history.close()

    def mark(self, flow: str, what: str, now_ms: int, text: str = "") -> None:
        self._add(self._flows[flow], Mark(at_ms=now_ms, what=what, text=text[:TEXT_MAX]))

    def begin_anew(self, flow: str) -> None:
        """Its batches are counted from another beginning."""
        self._batches.pop(flow, None)

    def has(self, flow: str, batch: int) -> bool:
        return batch <= self._batches.get(flow, -1)

    def batch(self, flow: str, progress: Progress, written: Written | None, now_ms: int) -> None:
        """Once, however often it is told of it."""
        if self.has(flow, progress.batch):
            return
        self._batches[flow] = progress.batch
        self._idles.pop(flow, None)
        since_ms = began_ms(progress.at, now_ms - progress.duration_ms)
        at_ms = since_ms + progress.duration_ms
        sample = Sample(
            since_ms=since_ms,
            at_ms=at_ms,
            rows=progress.rows,
            busy_ms=progress.duration_ms,
            longest_ms=progress.duration_ms,
            lag_records=progress.lag_records,
            lag_ms=lag_of(progress, at_ms),
            watermark_ms=written.watermark_ms if written else None,
            totals=_totals(written),
        )
        self._add(self._flows[flow], sample)

    def idle(self, flow: str, now_ms: int) -> None:
        """That there is nothing behind it is news after a batch, and then once a minute."""
        if now_ms - self._idles.get(flow, -IDLE_MS) < IDLE_MS:
            return
        self._idles[flow] = now_ms
        self._add(self._flows[flow], Sample(since_ms=now_ms, at_ms=now_ms, batches=0, lag_records=0, lag_ms=0))

    def _add(self, history: History, line: Line) -> None:
        try:
            history.add(line)
        except OSError as error:
            if not self._complained:
                self._tell(f"the history is not written: {error}")
            self._complained = True


def _totals(written: Written | None) -> dict[str, int]:
    if written is None:
        return {}
    return {**({} if written.late is None else {LATE: written.late}), **written.aside}


def began_ms(text: str, otherwise_ms: int) -> int:
    """Of the time that Spark gives a batch."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return otherwise_ms
