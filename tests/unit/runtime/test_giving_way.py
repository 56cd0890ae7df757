"""Work in idle time: which thread does it, what starving is, and how long the caller does it then."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tidelog.runtime import giving_way as giving_way_module
from tidelog.runtime.giving_way import GivingWay, give_way


class Times:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.used_s = 0.0


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def giving_way(times: Times) -> Iterator[GivingWay]:
    giving_way = GivingWay(lambda: times.now_s, lambda: times.used_s)
    yield giving_way
    giving_way.close()


def is_beside() -> bool:
    return threading.current_thread() is not threading.main_thread()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no idle class")
def test_work_is_done_in_idle_time_and_the_caller_keeps_its_own(giving_way: GivingWay) -> None:
    own = os.sched_getscheduler(0)
    assert giving_way.do(lambda: os.sched_getscheduler(0)) == os.SCHED_IDLE
    assert os.sched_getscheduler(0) == own


def test_an_error_reaches_the_caller(giving_way: GivingWay) -> None:
    with pytest.raises(KeyError, match="lost"):
        giving_way.do(lambda: {}["lost"])


@pytest.mark.parametrize(
    ("took_s", "used_s", "starved"),
    [(2.0, 0.1, True), (2.0, 0.3, False), (0.9, 0.0, False), (1.0, 0.0, True)],
)
def test_who_starved_is_relieved_by_the_caller_for_a_while(
    giving_way: GivingWay, times: Times, took_s: float, used_s: float, starved: bool
) -> None:
    def work() -> None:
        times.now_s += took_s
        times.used_s += used_s

    giving_way.do(work)
    assert giving_way.do(is_beside) is not starved
    times.now_s += 29.9
    assert giving_way.do(is_beside) is not starved
    times.now_s += 0.2
    assert giving_way.do(is_beside)


def test_starving_is_seen_when_the_work_fails(giving_way: GivingWay, times: Times) -> None:
    def work() -> None:
        times.now_s += 5.0
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        giving_way.do(work)
    assert not giving_way.do(is_beside)


def test_who_starves_again_is_relieved_for_longer(giving_way: GivingWay, times: Times) -> None:
    def starve() -> None:
        times.now_s += 5.0

    for relieved_s in (30, 60, 120, 240, 480, 600, 600):
        giving_way.do(starve)
        times.now_s += relieved_s - 1
        assert not giving_way.do(is_beside)
        times.now_s += 1
    giving_way.do(lambda: None)
    giving_way.do(starve)
    times.now_s += 31
    assert giving_way.do(is_beside)


@pytest.mark.skipif(not hasattr(os, "sched_yield"), reason="this system has no such call")
def test_whoever_gives_way_lets_the_system_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert giving_way_module._yield is os.sched_yield
    asked: list[bool] = []
    monkeypatch.setattr(giving_way_module, "_yield", lambda: asked.append(True))
    give_way()
    assert asked == [True]
