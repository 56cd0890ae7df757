"""A reprocess and a run tell each other when a flow has to stand still; either may die at any time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from tidelog.runtime.dirlock import DirectoryLock, lock_file
from tidelog.spark.pipeline.model import Restart
from tidelog.spark.pipeline.reprocess.asking import Pauses, standing_still
from tidelog.spark.pipeline.reprocess.places import Places
from tidelog.spark.pipeline.state import StateFiles
from tidelog.spark.pipeline.supervisor import (
    Effect,
    Ended,
    Opened,
    Pause,
    PauseAsked,
    Phase,
    ResumeAsked,
    Start,
    Stop,
    StopAsked,
    Supervisor,
    Tick,
)


class Run:
    """As much of a runner as answers a reprocess."""

    def __init__(self, work: Path) -> None:
        self.lock = StateFiles(work).lock()
        self.supervisor = Supervisor({"a": Restart(), "b": Restart()})
        self.pauses = Pauses(work, lambda text: None)
        self.effects: list[Effect] = []

    def turn(self) -> None:
        for event in [*self.pauses.events(self.supervisor.flows), Tick()]:
            for effect in self.supervisor.handle(event, 0):
                self.effects.append(effect)
                if isinstance(effect, Start):
                    self.supervisor.handle(Opened(effect.flow), 0)
                elif isinstance(effect, Pause | Stop):
                    self.supervisor.handle(Ended(effect.flow), 0)

    def phase(self, flow: str) -> Phase:
        return self.supervisor.flows[flow].phase


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "reprocess").mkdir()
    return Places(tmp_path, "a")


@pytest.fixture
def lock(places: Places) -> Iterator[DirectoryLock]:
    held = lock_file(str(places.lock))
    yield held
    held.release()


def test_without_a_run_none_can_start_meanwhile(places: Places, lock: DirectoryLock) -> None:
    with standing_still(places, pytest.fail, pytest.fail):
        assert StateFiles(places.work).read([]).alive
    StateFiles(places.work).lock().release()


def test_a_run_lets_the_flow_stand_still_and_goes_on_with_the_others(places: Places, lock: DirectoryLock) -> None:
    run = Run(places.work)
    run.turn()
    run.turn()
    assert (run.phase("a"), run.phase("b")) == (Phase.RUNNING, Phase.RUNNING)
    turns = 0

    def wait() -> None:
        nonlocal turns
        turns += 1
        assert turns < 10
        run.turn()

    with standing_still(places, lambda text: None, wait):
        assert run.effects[-1] == Pause("a")
        for _ in range(3):
            run.turn()
        assert (run.phase("a"), run.phase("b")) == (Phase.PAUSED, Phase.RUNNING)
    run.turn()
    assert run.phase("a") is Phase.RUNNING
    assert run.effects[-1] == Start("a")
    run.lock.release()


def test_a_flow_that_was_given_up_may_be_mended(places: Places, lock: DirectoryLock) -> None:
    run = Run(places.work)
    run.turn()
    run.supervisor.handle(Ended("a", "a column of another type", hopeless=True), 0)
    assert run.phase("a") is Phase.GIVEN_UP
    with standing_still(places, lambda text: None, run.turn):
        assert run.phase("a") is Phase.GIVEN_UP
    run.turn()
    assert run.phase("a") is Phase.RUNNING
    run.lock.release()


def test_a_reprocess_that_died_is_not_waited_for(places: Places) -> None:
    lock = lock_file(str(places.lock))
    run = Run(places.work)
    run.turn()
    places.ask.write_text("its token")
    run.turn()
    run.turn()
    assert places.still.read_text() == "its token"
    assert run.phase("a") is Phase.PAUSED
    lock.release()
    run.turn()
    assert run.phase("a") is Phase.RUNNING
    assert not places.ask.exists()
    run.lock.release()


def test_an_answer_to_another_reprocess_is_not_taken(places: Places, lock: DirectoryLock) -> None:
    run = Run(places.work)
    run.turn()
    places.still.write_text("the token of one that died")
    seen: list[Phase] = []

    def wait() -> None:
        run.turn()
        seen.append(run.phase("a"))

    with standing_still(places, lambda text: None, wait):
        assert seen[-1] is Phase.PAUSED
    run.lock.release()


def test_a_run_that_comes_back_does_not_start_the_flow(places: Places, lock: DirectoryLock) -> None:
    first = Run(places.work)
    first.turn()
    with standing_still(places, lambda text: None, first.turn):
        first.lock.release()  # it dies
        second = Run(places.work)
        for _ in range(3):
            second.turn()
        assert (second.phase("a"), second.phase("b")) == (Phase.PAUSED, Phase.RUNNING)
        assert Start("a") not in second.effects
    second.turn()
    assert second.phase("a") is Phase.RUNNING
    second.lock.release()


def test_a_run_that_ends_leaves_the_flow_to_the_reprocess(places: Places, lock: DirectoryLock) -> None:
    run = Run(places.work)
    run.turn()

    def end() -> None:
        run.supervisor.handle(StopAsked(), 0)
        run.lock.release()

    with standing_still(places, lambda text: None, end):
        assert StateFiles(places.work).read([]).alive
    assert not places.ask.exists()


def test_a_stop_ends_flows_that_stand_still() -> None:
    supervisor = Supervisor({"a": Restart(), "b": Restart()})
    supervisor.handle(Tick(), 0)
    supervisor.handle(PauseAsked("b"), 0)
    assert supervisor.flows["b"].phase is Phase.PAUSED
    assert supervisor.handle(PauseAsked("a"), 0) == [Pause("a")]
    assert supervisor.handle(StopAsked(), 0) == [Stop("a")]
    supervisor.handle(Ended("a"), 0)
    assert {status.phase for status in supervisor.flows.values()} == {Phase.STOPPED}
    supervisor.handle(ResumeAsked("a"), 0)
    assert supervisor.flows["a"].phase is Phase.STOPPED
