"""Spark's streaming listener: what the queries of the flows report, into the meters at once and to the runner later.

Spark calls it from the thread that serves all listeners of the session, through Python's callbacks, and a batch may
be over long before its report comes. So it only counts and remembers; the runner takes what was heard when it looks
at its flows, and writes it down. What nobody takes is bounded: the oldest goes first.

PySpark's own wrapper asks Java for each field of a report, a hundred calls: on a busy machine the listener came minutes
behind six flows, and a kill took what it had not heard yet. Ours asks for the report as JSON, once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tidelog.kernel.ports import Clock
from tidelog.spark.pipeline.meters import Meters
from tidelog.spark.pipeline.progress import Progress, progress_of

UNTAKEN_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Heard:
    flow: str
    at_ms: int
    progress: Progress | None = None
    """None: the query looked at the log and found nothing new."""


class FlowListener:
    """For `spark.streams.addListener`, which needs no more of it than `_jlistener`."""

    def __init__(self, flows: frozenset[str], meters: Meters, clock: Clock) -> None:
        self._flows = flows
        self._meters = meters
        self._clock = clock
        self._runs: dict[str, str] = {}  # an idle query does not say its name
        self._heard: deque[Heard] = deque(maxlen=UNTAKEN_MAX)
        self._wrapped: Any = None

    def take(self) -> Iterator[Heard]:
        while self._heard:
            yield self._heard.popleft()

    def started(self, run: str, name: str | None) -> None:
        # Of this session, but perhaps not of this pipeline.
        if name in self._flows:
            self._runs[run] = name

    def progressed(self, report: dict[str, Any]) -> None:
        flow = self._runs.get(report["runId"])
        if flow is not None:
            progress, now_ms = progress_of(report), self._clock.wall_ms()
            self._meters.batch(flow, progress, now_ms)
            self._heard.append(Heard(flow, now_ms, progress))

    def idle(self, run: str) -> None:
        flow = self._runs.get(run)
        if flow is not None:
            now_ms = self._clock.wall_ms()
            self._meters.idle(flow, now_ms)
            self._heard.append(Heard(flow, now_ms))

    def ended(self, run: str) -> None:
        self._runs.pop(run, None)

    @property
    def _jlistener(self) -> Any:
        """What `addListener` gives to Java."""
        from pyspark import SparkContext

        if self._wrapped is None:
            self._wrapped = SparkContext._jvm.PythonStreamingQueryListenerWrapper(_Called(self))
        return self._wrapped


class _Called:
    """Called by Java, by these names, with events that are still there and not here."""

    def __init__(self, listener: FlowListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:
        self._listener.started(event.runId().toString(), event.name())

    def onQueryProgress(self, event: Any) -> None:
        self._listener.progressed(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:
        self._listener.idle(event.runId().toString())

    def onQueryTerminated(self, event: Any) -> None:
        self._listener.ended(event.runId().toString())

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
