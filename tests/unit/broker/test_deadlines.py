"""One heap of deadlines on virtual time: order, cancelling, re-arming, and nothing that is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from tidelog.broker.deadlines import Deadline, Deadlines
from tidelog.sim.loop import SimulationError, run


def in_time(scenario: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        run(scenario())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


@in_time
async def test_they_fire_at_their_time_and_in_order() -> None:
    deadlines, fired = Deadlines(), []
    for delay_s in (5.0, 1.0, 3.0, 1.0, 0.0):
        number = len(deadlines)
        deadlines.after(delay_s, lambda n=number: fired.append((n, asyncio.get_running_loop().time())))
    await asyncio.sleep(10)
    assert fired == [(4, 0.0), (1, 1.0), (3, 1.0), (2, 3.0), (0, 5.0)]
    assert len(deadlines) == 0


@in_time
async def test_an_earlier_one_that_comes_later_rearms_the_timer() -> None:
    deadlines, fired = Deadlines(), []
    deadlines.after(60, lambda: fired.append(("late", asyncio.get_running_loop().time())))
    await asyncio.sleep(1)
    deadlines.after(2, lambda: fired.append(("early", asyncio.get_running_loop().time())))
    await asyncio.sleep(100)
    assert fired == [("early", 3.0), ("late", 60.0)]


@in_time
async def test_a_cancelled_one_does_not_fire_and_cancelling_twice_counts_once() -> None:
    deadlines, fired = Deadlines(), []
    first = deadlines.after(1, lambda: fired.append("first"))
    deadlines.after(2, lambda: fired.append("second"))
    first.cancel()
    first.cancel()
    assert first.is_cancelled
    assert len(deadlines) == 1
    await asyncio.sleep(5)
    assert fired == ["second"]
    first.cancel()
    assert len(deadlines) == 0


@in_time
async def test_one_may_cancel_another_that_is_due_at_the_same_time() -> None:
    deadlines, fired = Deadlines(), []
    others: list[Deadline] = []
    deadlines.after(1, lambda: (fired.append("first"), others[0].cancel()))  # type: ignore[func-returns-value]
    others.append(deadlines.after(1, lambda: fired.append("second")))
    await asyncio.sleep(5)
    assert fired == ["first"]
    assert len(deadlines) == 0


@in_time
async def test_one_that_sets_itself_again_at_once_lets_the_loop_go_on() -> None:
    """The coordinator's poll does so while it has more to do; everybody else must have a turn in between."""
    deadlines, turns = Deadlines(), 0

    def again() -> None:
        nonlocal turns
        turns += 1
        deadlines.after(0, again)

    deadlines.after(0, again)
    for _ in range(20):
        await asyncio.sleep(0)
    assert 2 <= turns <= 20
    deadlines.close()


@in_time
async def test_cancelled_ones_are_swept_before_they_outgrow_those_that_wait() -> None:
    """A long poll that is woken leaves a deadline behind: a thousand wakes a second over 500 ms, and more."""
    deadlines, fired = Deadlines(), []
    kept = [deadlines.after(100, lambda n=n: fired.append(n)) for n in range(10)]
    for _ in range(20_000):
        deadlines.after(50, lambda: fired.append("cancelled")).cancel()
    assert len(deadlines) == len(kept)
    assert len(deadlines._heap) < 5_000
    await asyncio.sleep(200)
    assert fired == list(range(10))


@in_time
async def test_the_count_is_right_whatever_happens_in_between() -> None:
    """Sweeping happens within a callback as well: what that one goes on with must be the swept heap."""
    random = Random(5)
    deadlines = Deadlines()
    alive: dict[Deadline, None] = {}  # in order, so that a seed replays
    fired = 0

    def make() -> None:
        holder: list[Deadline] = []

        def fire() -> None:
            nonlocal fired
            fired += 1
            assert holder[0] in alive, "fired twice, or after it was cancelled"
            del alive[holder[0]]
            for _ in range(random.choice((0, 1, 2))):
                make()
            for deadline in list(alive)[: random.choice((0, 0, 2))]:
                deadline.cancel()
                del alive[deadline]

        holder.append(deadlines.after(random.choice((0.0, 0.1, 1.0, 30.0)), fire))
        alive[holder[0]] = None

    for _ in range(400):
        for _ in range(20):
            make()
        for deadline in list(alive)[::2]:
            deadline.cancel()
            del alive[deadline]
        await asyncio.sleep(random.choice((0.0, 0.05, 0.5)))
        assert len(deadlines) == len(alive)
    await asyncio.sleep(3600)
    assert fired > 1000
    assert not alive and len(deadlines) == 0
    assert not deadlines._heap


@in_time
async def test_closing_forgets_everything() -> None:
    deadlines, fired = Deadlines(), []
    waiting = deadlines.after(1, lambda: fired.append("never"))
    deadlines.close()
    waiting.cancel()
    await asyncio.sleep(5)
    assert not fired
    assert len(deadlines) == 0


def test_a_callback_that_fails_does_not_take_the_others_with_it() -> None:
    """The node stops for it; until then, and in a node on a loop of its user's, everybody else must be answered."""
    fired: list[str] = []

    async def scenario() -> None:
        deadlines = Deadlines()
        deadlines.after(1, lambda: fired.append("before"))
        deadlines.after(1, fail)
        deadlines.after(1, lambda: fired.append("behind"))
        deadlines.after(2, lambda: fired.append("later"))
        await asyncio.sleep(10)

    def fail() -> None:
        raise AssertionError("a bug")

    with pytest.raises(SimulationError, match="a bug"):
        run(scenario())
    assert fired == ["before", "behind", "later"]
