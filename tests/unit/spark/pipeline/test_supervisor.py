"""Flows start, fail, start again, are given up and stop, by a clock that the test moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipeline.model import Restart
from tidelog.spark.pipeline.supervisor import (
    END,
    Effect,
    Ended,
    Finish,
    Opened,
    Phase,
    Progressed,
    Start,
    Stop,
    StopAsked,
    Supervisor,
    Tell,
    Tick,
)

RESTART = Restart(first_ms=1000, most_ms=5000, give_up_after=4)


def started(*flows: str) -> Supervisor:
    supervisor = Supervisor(dict.fromkeys(flows, RESTART))
    for flow in flows:
        assert Start(flow) in supervisor.handle(Tick(), 0) or supervisor.flows[flow].phase is Phase.RUNNING
        supervisor.handle(Opened(flow), 0)
    return supervisor


def texts(effects: list[Effect]) -> list[str]:
    return [f"{effect.flow}: {effect.text}" for effect in effects if isinstance(effect, Tell)]


def test_the_pause_doubles_up_to_its_bound_and_the_other_flow_is_left_alone() -> None:
    supervisor = Supervisor({"b": RESTART, "a": Restart(first_ms=1000, most_ms=5000, give_up_after=9)})
    for event in (Tick(), Opened("b"), Tick()):
        supervisor.handle(event, 0)
    now = 0
    for pause in (1000, 2000, 4000, 5000, 5000):
        (tell,) = supervisor.handle(Ended("a", "boom"), now)
        assert isinstance(tell, Tell)
        assert supervisor.deadline_ms() == now + pause
        assert supervisor.handle(Tick(), now + pause - 1) == []
        now += pause
        assert supervisor.handle(Tick(), now) == [Start("a")]
    assert supervisor.flows["a"].restarts == 5
    assert supervisor.flows["b"].phase is Phase.RUNNING


def test_a_finished_batch_makes_the_next_pause_short() -> None:
    supervisor = started("a")
    supervisor.handle(Ended("a", "boom"), 0)
    supervisor.handle(Tick(), 1000)
    supervisor.handle(Progressed("a", 7), 1500)
    assert texts(supervisor.handle(Ended("a", "boom"), 2000)) == [
        "a: failed (1 in a row), starts again from its checkpoint in 1 s: boom"
    ]


def test_a_start_that_only_looks_at_an_idle_log_is_a_good_one() -> None:
    supervisor = started("a")
    supervisor.handle(Progressed("a", 7), 0)
    for now in range(0, 900_000, 100_000):
        supervisor.handle(Ended("a", "the broker is away"), now)
        supervisor.handle(Tick(), now + 5000)
        supervisor.handle(Progressed("a", 7), now + 6000)
    assert supervisor.flows["a"].phase is Phase.RUNNING
    assert supervisor.flows["a"].failures == 0


def test_a_flow_that_fails_again_and_again_is_named_and_the_others_go_on() -> None:
    supervisor = started("a", "b")
    effects: list[Effect] = []
    for failure in range(4):
        effects = supervisor.handle(Ended("a", "boom"), failure * 100_000)
        supervisor.handle(Tick(), failure * 100_000 + 5000)
    assert texts(effects) == ["a: given up (failure 4 in a row); the other flows go on: boom"]
    assert supervisor.flows["b"].phase is Phase.RUNNING
    assert supervisor.deadline_ms() is None
    assert supervisor.handle(Ended("b"), 900_000) == [Finish(("a",))]


def test_an_error_that_no_restart_can_mend_ends_the_flow_at_once() -> None:
    supervisor = started("a")
    assert supervisor.handle(Ended("a", "no such column", hopeless=True), 0)[1:] == [Finish(("a",))]


def test_a_stop_waits_for_what_runs_and_starts_nothing() -> None:
    supervisor = started("a", "b", "c")
    supervisor.handle(Ended("b", "boom"), 0)
    assert supervisor.handle(StopAsked(), 10) == [Stop("a"), Stop("c")]
    assert supervisor.handle(StopAsked(), 11) == []
    assert supervisor.handle(Tick(), 10_000) == []
    assert supervisor.handle(Ended("a"), 10_001) == []
    # The error of a query that was stopped is no failure.
    assert supervisor.handle(Ended("c", "interrupted"), 10_002) == [Finish(())]
    assert {status.phase for status in supervisor.flows.values()} == {Phase.STOPPED}


def test_one_flow_opens_at_a_time_and_the_next_when_it_is_at_work_or_has_failed() -> None:
    supervisor = Supervisor(dict.fromkeys("abcd", RESTART))
    assert supervisor.handle(Tick(), 0) == [Start("a")]
    assert supervisor.handle(Tick(), 1) == []
    supervisor.handle(Ended("a", "Python worker failed to connect back."), 2)
    assert supervisor.handle(Tick(), 3) == [Start("b")]
    supervisor.handle(Opened("b"), 4)
    assert supervisor.handle(Tick(), 5) == [Start("c")]
    supervisor.handle(Progressed("c", 0), 6)  # which says the same
    assert supervisor.handle(Tick(), 7) == [Start("d")]
    assert supervisor.handle(Tick(), 2000) == []
    supervisor.handle(Opened("d"), 2001)
    assert supervisor.handle(Tick(), 2002) == [Start("a")]


@given(
    st.lists(st.tuples(st.sampled_from(["tick", "fail", "hopeless", "end", "batch", "stop"]), st.sampled_from("ab")))
)
def test_every_flow_that_runs_was_started_once_and_the_end_is_told_once(steps: list[tuple[str, str]]) -> None:
    supervisor = Supervisor({"a": RESTART, "b": RESTART})
    running: set[str] = set()
    finishes, batch, now = 0, 0, 0
    for step, flow in steps:
        now += 700
        batch += 1
        if step in ("fail", "hopeless", "end"):
            if flow not in running:
                continue
            running.discard(flow)
            effects = supervisor.handle(Ended(flow, None if step == "end" else "boom", step == "hopeless"), now)
        elif step == "batch":
            effects = supervisor.handle(Progressed(flow, batch), now)
        else:
            effects = supervisor.handle(Tick() if step == "tick" else StopAsked(), now)
        for effect in effects:
            if isinstance(effect, Start):
                assert effect.flow not in running
                assert not supervisor.stopping
                running.add(effect.flow)
            finishes += isinstance(effect, Finish)
        live = {name for name, status in supervisor.flows.items() if status.phase in (Phase.RUNNING, Phase.STOPPING)}
        assert live == running
        assert finishes == all(status.phase in END for status in supervisor.flows.values())
