"""Runs a pipeline: one Spark session, a query per flow, the supervisor's effects, the state files and the history.

The only loop: look at the queries a few times a second, tell the supervisor, do what it says, write down what was
heard of them. A stop is a flag, as a signal handler may set it at any point of the loop.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.kernel.errors import DirectoryLockedError, TidelogError
from tidelog.kernel.ports import Clock
from tidelog.spark.pipeline.faults import PipelineError
from tidelog.spark.pipeline.history import REPROCESSED
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.meters import Meters
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.plans import Plans, Source
from tidelog.spark.pipeline.progress import Progress
from tidelog.spark.pipeline.recording import Recorder
from tidelog.spark.pipeline.reprocess.asking import Pauses
from tidelog.spark.pipeline.reprocess.places import query_of
from tidelog.spark.pipeline.reprocess.swap import finish_all
from tidelog.spark.pipeline.running import RunningFlow, describe
from tidelog.spark.pipeline.state import FlowState, RunState, StateFiles
from tidelog.spark.pipeline.supervisor import (
    AT_WORK,
    Effect,
    Ended,
    Event,
    Finish,
    Opened,
    Pause,
    PauseAsked,
    Phase,
    Progressed,
    ResumeAsked,
    Start,
    Stop,
    StopAsked,
    Supervisor,
    Tell,
    Tick,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipeline.listening import FlowListener

LOOK_S: Final = 0.25
JAVA_END_S: Final = 2.0  # its connections break a moment before it has ended


class RunError(TidelogError):
    """The pipeline cannot be run here and now."""


class Runner:
    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        clock: Clock,
        tell: Callable[[str], None],
        *,
        once: bool = False,
        source: Source | None = None,
        meters: Meters | None = None,
        only: Collection[str] | None = None,
        reload: Callable[[], Pipeline] | None = None,
    ) -> None:
        """only: of its flows; the others are there to be read. reload: the pipeline as its file has it by then."""
        self.stop_asked = False
        self.meters = meters or Meters(pipeline.flows)
        self._pipeline = pipeline
        self._spark = spark
        self._clock = clock
        self._tell = tell
        self._once = once
        self._source = source
        self._reload = reload
        self._plans = Plans(spark, pipeline, source)
        self._files = StateFiles(pipeline.work)
        flows = {name: flow for name, flow in pipeline.flows.items() if only is None or name in only}
        self._flows = {name: RunningFlow(flow, pipeline, self._plans, clock, once) for name, flow in flows.items()}
        self._supervisor = Supervisor({name: flow.restart for name, flow in flows.items()})
        self._pauses = Pauses(pipeline.work, tell)
        self._paused: dict[str, str | None] = {}  # the query that each was when it was asked to stand still
        self._error_ms: dict[str, int] = {}
        self._last: dict[str, Progress] = {}  # of queries that have ended
        self._started_ms = clock.wall_ms()
        self._written: dict[str, FlowState] = {}
        self._seen_ms = 0

    def run(self) -> int:
        """Until all flows have ended; the exit code."""
        try:
            lock = self._files.lock()
        except DirectoryLockedError:
            raise RunError(f"another process runs this pipeline already ({self._pipeline.work})") from None
        code: int | None = None
        recorder = Recorder(self._pipeline.work, self._flows, self._tell)
        recorder.begin(self._files.read([]).run, self._started_ms, os.getpid())
        try:
            self._write_state()
            finish_all(self._pipeline.work, self._tell)
            self._plans.check()
            with self._listening() as listener:
                code = self._loop(listener, recorder)
        except PipelineError:
            raise
        except Exception as error:
            gone = self._without_java()
            if gone is None:
                raise
            raise gone from error
        finally:
            self._write_state(ended=True, code=1 if code is None else code)
            recorder.end(1 if code is None else code, self._clock.wall_ms())
            lock.release()
        return code

    @contextlib.contextmanager
    def _listening(self) -> Iterator[FlowListener]:
        from tidelog.spark.pipeline.listening import FlowListener

        listener = FlowListener(frozenset(self._flows), self.meters, self._clock)
        self._spark.streams.addListener(listener)
        try:
            yield listener
        finally:
            with contextlib.suppress(Exception):  # there may be no Java any more to take it from
                self._spark.streams.removeListener(listener)

    def _loop(self, heard: FlowListener, recorder: Recorder) -> int:
        pause = threading.Event()  # never set: a wait that lets signal handlers run
        while True:
            events = deque(self._events())
            while events:
                event = events.popleft()
                effects = self._supervisor.handle(event, self._now_ms())
                if isinstance(event, Ended):
                    self._record_end(event, recorder)
                elif isinstance(event, PauseAsked):
                    self._paused[event.flow] = query_of(self._flows[event.flow].checkpoint)
                elif isinstance(event, ResumeAsked):
                    self._paused.setdefault(event.flow, None)  # given up before it was asked
                for effect in effects:
                    if isinstance(effect, Finish):
                        return self._finish(effect)
                    events += self._do(effect, recorder)
            self._record(heard, recorder)
            self._write_state()
            pause.wait(LOOK_S)

    def _events(self) -> list[Event]:
        events: list[Event] = [StopAsked()] if self.stop_asked and not self._supervisor.stopping else []
        for name, status in self._supervisor.flows.items():
            if status.phase not in AT_WORK:
                continue
            flow = self._flows[name]
            ended = not flow.is_active
            if status.opening and flow.is_open:
                events.append(Opened(name))
            progress = flow.progress()
            if progress is not None and progress.batch > status.batch:
                events.append(Progressed(name, progress.batch))
            if ended:
                error = flow.error()
                events.append(Ended(name) if error is None else Ended(name, error[0], error[1]))
            elif not self._supervisor.stopping:
                flow.look()
        return [*events, *self._pauses.events(self._supervisor.flows), Tick()]

    def _do(self, effect: Effect, recorder: Recorder) -> list[Event]:
        match effect:
            case Start(name):
                try:
                    if name in self._paused:
                        self._renew(name, recorder)
                    self._flows[name].start()
                    recorder.mark(name, "started", self._clock.wall_ms())
                    self._tell(f"{name}: started")
                except Exception as error:
                    return [Ended(name, *describe(error))]
            case Stop(name):
                self._tell(f"{name}: stopping after the current batch")
                for flow in self._flows.values():
                    flow.close_gate()
                self._flows[name].stop()
            case Pause(name):
                self._tell(f"{name}: stands still after the current batch, for a reprocess")
                self._flows[name].stop()
            case Tell(name, text):
                self._error_ms[name] = self._clock.wall_ms()
                self._tell(f"{name}: {text}")
        return []

    def _renew(self, name: str, recorder: Recorder) -> None:
        """A flow that stood still begins anew: after a swap from the new checkpoint, as the file has it by then, else
        as it was."""
        before, flow = self._paused[name], self._flows[name]
        pipeline, plans = self._pipeline, self._plans
        if query_of(flow.checkpoint) != before:
            recorder.begin_anew(name)
            recorder.mark(name, REPROCESSED, self._clock.wall_ms())
            self._tell(f"{name}: was reprocessed; goes on with what took its place")
            if self._reload is not None:
                pipeline = replace(self._reload(), work=self._pipeline.work)
                plans = Plans(self._spark, pipeline, self._source)
        if name not in pipeline.flows:
            raise RunError(f"there is no flow {name!r} in {pipeline.source} any more")
        self._flows[name] = RunningFlow(pipeline.flows[name], pipeline, plans, self._clock, self._once)
        del self._paused[name]

    def _finish(self, effect: Finish) -> int:
        if effect.given_up:
            self._tell(f"ended; given up: {', '.join(effect.given_up)}")
        return 1 if effect.given_up else 0

    def _without_java(self) -> RunError | None:
        """A session whose Java process is gone can start nothing again, but the next run can: say so."""
        proc = getattr(self._spark.sparkContext._gateway, "proc", None)
        try:
            code = None if proc is None else proc.wait(JAVA_END_S)
        except subprocess.TimeoutExpired:
            code = None
        return (
            None if code is None else RunError(f"Spark's Java process has ended (code {code}); run the pipeline again")
        )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)

    # History

    def _record(self, heard: FlowListener, recorder: Recorder) -> None:
        for report in heard.take():
            if report.progress is None:
                recorder.idle(report.flow, report.at_ms)
            else:
                written = self._flows[report.flow].written_by(report.progress.batch)
                recorder.batch(report.flow, report.progress, written, report.at_ms)

    def _record_end(self, event: Ended, recorder: Recorder) -> None:
        flow, now_ms = self._flows[event.flow], self._clock.wall_ms()
        # What Spark tells its listeners may come after the query's end, and nobody would be there.
        last = flow.progress()
        if last is not None:
            self._last[event.flow] = last  # a batch may have come since the look before: nobody asks for it again
        if last is not None and not recorder.has(event.flow, last.batch):
            for progress in flow.batches():
                recorder.batch(event.flow, progress, flow.written_by(progress.batch), now_ms)
        phase = self._supervisor.flows[event.flow].phase
        what = "failed" if phase is Phase.WAITING else str(phase)
        recorder.mark(event.flow, what, now_ms, event.error or "")

    # State files

    def _write_state(self, ended: bool = False, code: int | None = None) -> None:
        now_ms = self._clock.wall_ms()
        for name in self._flows:
            self._write_flow(name, now_ms, ended)
        if ended or now_ms - self._seen_ms >= 1000:
            self._seen_ms = now_ms
            self._files.write_run(
                RunState(
                    pipeline=self._pipeline.name,
                    pid=os.getpid(),
                    started_ms=self._started_ms,
                    seen_ms=now_ms,
                    ended_ms=now_ms if ended else None,
                    code=code,
                )
            )

    def _write_flow(self, name: str, now_ms: int, ended: bool) -> None:
        flow, status = self._flows[name], self._supervisor.flows[name]
        before = self._written.get(name)
        # At the end there may be nobody left to ask.
        progress = flow.progress() if not ended and status.phase in AT_WORK else None
        state = FlowState(
            flow=name,
            kind=kind_of(flow.flow).name,
            phase=str(status.phase),
            written_ms=before.written_ms if before else now_ms,
            progress=progress or self._last.get(name) or (before.progress if before else None),
            rows=flow.written.rows if flow.written else None,
            late=flow.written.late if flow.written else None,
            watermark_ms=flow.written.watermark_ms if flow.written else None,
            aside=dict(flow.written.aside) if flow.written else {},
            dead=flow.written.dead if flow.written else None,
            retrying=flow.written.retrying if flow.written else None,
            failures=status.failures,
            restarts=status.restarts,
            last_error=status.last_error or flow.upkeep_error,
            last_error_ms=self._error_ms.get(name),
        )
        if state != before:
            self._written[name] = state
            self.meters.publish(state)
            self._files.write_flow(msgspec.structs.replace(state, written_ms=now_ms))
