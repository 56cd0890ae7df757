"""When flows start, start again, are given up and stop: a state machine without Spark, threads or a clock.

Events in, ordered effects out, time as an argument. A flow that ends with an error starts again after a pause that
doubles from failure to failure; a finished batch makes the next pause short again. After `give_up_after` failures
in a row, or an error that no restart can mend, the flow is given up and named, and the others go on.

One flow opens at a time. Each starts a Python process that has 10 s to call Spark back; on a busy machine those of a
dozen flows would all come too late, all fail, and all start again together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidelog.spark.pipeline.model import Restart


class Phase(StrEnum):
    WAITING = "waiting"  # for its first start, or for the end of a pause
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    PAUSING = "pausing"
    PAUSED = "paused"  # a reprocess swaps its tables
    DONE = "done"  # all that was there is read (trigger: once)
    GIVEN_UP = "given up"


OPENING_MAX: Final = 1
NOTHING: Final = -2  # -1 is a report too: there is no batch yet, and the log was looked at
AT_WORK: frozenset[Phase] = frozenset({Phase.RUNNING, Phase.STOPPING, Phase.PAUSING})
END: frozenset[Phase] = frozenset({Phase.STOPPED, Phase.DONE, Phase.GIVEN_UP})


# Events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Its query has its source, and begins to look at the log."""

    flow: str


@dataclass(frozen=True, slots=True)
class Progressed:
    flow: str
    batch: int


@dataclass(frozen=True, slots=True)
class Ended:
    flow: str
    error: str | None = None
    hopeless: bool = False  # the same would happen again, such as a column that does not exist


@dataclass(frozen=True, slots=True)
class StopAsked:
    pass


@dataclass(frozen=True, slots=True)
class PauseAsked:
    flow: str


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """Of a flow that stood still, from whatever reason: what made it do so may be mended."""

    flow: str


Event = Tick | Opened | Progressed | Ended | StopAsked | PauseAsked | ResumeAsked

# Effects


@dataclass(frozen=True, slots=True)
class Start:
    flow: str


@dataclass(frozen=True, slots=True)
class Stop:
    """After the current batch."""

    flow: str


@dataclass(frozen=True, slots=True)
class Pause:
    """After the current batch; the other flows go on."""

    flow: str


@dataclass(frozen=True, slots=True)
class Tell:
    flow: str
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    given_up: tuple[str, ...]


Effect = Start | Stop | Pause | Tell | Finish


@dataclass(frozen=True, slots=True)
class FlowStatus:
    phase: Phase = Phase.WAITING
    failures: int = 0  # in a row
    restarts: int = 0  # in all
    due_ms: int = 0
    last_error: str | None = None
    batch: int = NOTHING  # the last one that this start has reported
    opening: bool = False  # started, and not yet seen to be at work


class Supervisor:
    def __init__(self, flows: Mapping[str, Restart]) -> None:
        self._restart = dict(flows)
        self.flows: dict[str, FlowStatus] = {flow: FlowStatus() for flow in flows}
        self.stopping = False
        self._finished = False

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Opened(flow):
                self.flows[flow] = replace(self.flows[flow], opening=False)
            case Progressed(flow, batch):
                self._progressed(flow, batch)
            case Ended():
                effects += self._ended(event, now_ms)
            case StopAsked():
                effects += self._stop()
            case PauseAsked(flow):
                effects += self._pause(flow)
            case ResumeAsked(flow):
                self._resume(flow, now_ms)
            case Tick():
                effects += self._due(now_ms)
        if not self._finished and all(status.phase in END for status in self.flows.values()):
            self._finished = True
            given_up = (flow for flow, status in self.flows.items() if status.phase is Phase.GIVEN_UP)
            effects.append(Finish(tuple(given_up)))
        return effects

    def deadline_ms(self) -> int | None:
        """When a Tick is due."""
        return min((s.due_ms for s in self.flows.values() if s.phase is Phase.WAITING), default=None)

    def _due(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        opening = sum(status.opening for status in self.flows.values())
        for flow, status in self.flows.items():
            if opening < OPENING_MAX and status.phase is Phase.WAITING and status.due_ms <= now_ms:
                opening += 1
                self.flows[flow] = replace(status, phase=Phase.RUNNING, batch=NOTHING, opening=True)
                effects.append(Start(flow))
        return effects

    def _progressed(self, flow: str, batch: int) -> None:
        # Spark reports only what went well, an idle look at the log as well: the first report after a start is health.
        status = self.flows[flow]
        if batch > status.batch:
            self.flows[flow] = replace(status, batch=batch, failures=0, opening=False)

    def _ended(self, event: Ended, now_ms: int) -> list[Effect]:
        status = replace(self.flows[event.flow], opening=False)
        assert status.phase in AT_WORK, (event, status)
        if status.phase is Phase.PAUSING and not self.stopping:
            self.flows[event.flow] = replace(status, phase=Phase.PAUSED, last_error=event.error or status.last_error)
            return []
        if event.error is None or self.stopping:
            phase = Phase.STOPPED if self.stopping else Phase.DONE
            self.flows[event.flow] = replace(status, phase=phase, last_error=event.error or status.last_error)
            return []
        failures = status.failures + 1
        restart = self._restart[event.flow]
        status = replace(status, failures=failures, last_error=event.error)
        if event.hopeless or failures >= restart.give_up_after:
            self.flows[event.flow] = replace(status, phase=Phase.GIVEN_UP)
            why = "no restart can mend it" if event.hopeless else f"failure {failures} in a row"
            return [Tell(event.flow, f"given up ({why}); the other flows go on: {event.error}")]
        pause_ms = min(restart.first_ms << min(failures - 1, 40), restart.most_ms)
        self.flows[event.flow] = replace(
            status, phase=Phase.WAITING, due_ms=now_ms + pause_ms, restarts=status.restarts + 1
        )
        text = f"failed ({failures} in a row), starts again from its checkpoint in {pause_ms / 1000:g} s: {event.error}"
        return [Tell(event.flow, text)]

    def _stop(self) -> list[Effect]:
        self.stopping = True
        effects: list[Effect] = []
        for flow, status in self.flows.items():
            if status.phase in (Phase.WAITING, Phase.PAUSED):
                self.flows[flow] = replace(status, phase=Phase.STOPPED)
            elif status.phase in (Phase.RUNNING, Phase.PAUSING):
                self.flows[flow] = replace(status, phase=Phase.STOPPING)
                effects.append(Stop(flow))
        return effects

    def _pause(self, flow: str) -> list[Effect]:
        status = self.flows[flow]
        if status.phase is Phase.WAITING:
            self.flows[flow] = replace(status, phase=Phase.PAUSED)
        elif status.phase is Phase.RUNNING:
            self.flows[flow] = replace(status, phase=Phase.PAUSING)
            return [Pause(flow)]
        return []

    def _resume(self, flow: str, now_ms: int) -> None:
        status = self.flows[flow]
        if status.phase in (Phase.PAUSED, Phase.GIVEN_UP) and not self.stopping:
            self.flows[flow] = replace(status, phase=Phase.WAITING, due_ms=now_ms, failures=0)
