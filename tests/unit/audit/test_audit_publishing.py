"""Counts of a producer that threads share, and notices that do not arrive at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tidelog.audit.notices import Notice, decode
from tidelog.audit.publishing import Publisher, this_member

WINDOW_MS = 1 << 50


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_threads_lose_no_count() -> None:
    sent: list[Notice] = []

    def send(notice: Notice, value: bytes, done: Callable[[bool], None]) -> None:
        sent.append(decode(value))
        done(True)

    publisher = Publisher(this_member("producer", "p", "h"), send, window_ms=WINDOW_MS)

    def work() -> None:
        for _ in range(2_000):
            publisher.sending("t", 1)
            publisher.sent("t", 1, delivered=True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    publisher.close()
    assert sent[-1].ended, "nothing is under way"
    assert [one.count for one in sent[-1].counts] == [8_000]


def test_a_notice_that_did_not_arrive_goes_again_with_the_next() -> None:
    arrived: list[Notice] = []
    verdicts = [False, BufferError(), True, True, True]

    def send(notice: Notice, value: bytes, done: Callable[[bool], None]) -> None:
        verdict = verdicts.pop(0)
        if isinstance(verdict, BufferError):
            raise verdict
        if verdict:
            arrived.append(decode(value))
        done(verdict)

    publisher = Publisher(this_member("producer", "p", None), send, window_ms=WINDOW_MS, topics=("t",))
    publisher.close()  # the first goes again and finds the queue full; the second arrives
    publisher.sending("t", 1)
    publisher.sent("t", 1, delivered=True)
    publisher.close()
    assert [one.sequence for one in arrived] == [2, 1, 3]
    assert not verdicts


def test_a_member_has_a_name() -> None:
    with pytest.raises(ValueError, match="name is empty"):
        this_member("producer", "", None)
    assert this_member("producer", "p", None).incarnation != this_member("producer", "p", None).incarnation
