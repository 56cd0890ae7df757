from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.timers import Timers


def due(timers: Timers[str], now_ms: int) -> list[str]:
    found = []
    while (key := timers.pop_due(now_ms)) is not None:
        found.append(key)
    return found


def test_what_is_due_comes_in_the_order_of_its_deadlines() -> None:
    timers: Timers[str] = Timers()
    for key, at in (("late", 30), ("early", 10), ("also early", 10)):
        timers.schedule(key, at)
    assert timers.next_ms() == 10
    assert due(timers, 9) == []
    assert due(timers, 30) == ["early", "also early", "late"]
    assert timers.next_ms() is None


def test_a_prolonged_deadline_does_not_fire_at_the_old_one() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10)
    timers.schedule("a", 20)
    assert timers.next_ms() == 20
    assert due(timers, 19) == []
    assert due(timers, 20) == ["a"]


def test_a_cancelled_deadline_never_fires() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 10)
    timers.cancel("a")
    assert timers.next_ms() is None
    assert due(timers, 100) == []


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 10)), max_size=40
    )
)
def test_timers_agree_with_a_plain_dictionary(steps: list[tuple[str, int | None, int]]) -> None:
    timers: Timers[str] = Timers()
    plain: dict[str, int] = {}
    now_ms = 0
    for key, delay, pause in steps:
        now_ms += pause
        fired = due(timers, now_ms)
        assert sorted(fired) == sorted(name for name, at in plain.items() if at <= now_ms)
        plain = {name: at for name, at in plain.items() if at > now_ms}
        if delay is None:
            timers.cancel(key)
            plain.pop(key, None)
        else:
            timers.schedule(key, now_ms + delay)
            plain[key] = now_ms + delay
        assert timers.next_ms() == min(plain.values(), default=None)
