"""Small answers leave together at the end of the turn, in the order of their coming, and never later than a bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.broker.fakes import Link, World, framed
from tidelog.broker.connection import Connection
from tidelog.broker.outbox import AT_ONCE, TOGETHER_MAX, Outbox


class Turn:
    """A loop's turn, ended by the test."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def end(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


class Sender:
    def __init__(self, sent: list[int], number: int) -> None:
        self._sent = sent
        self._number = number

    def send_ready(self) -> None:
        self._sent.append(self._number)


def test_all_of_a_turn_are_sent_at_its_end_in_order() -> None:
    turn, sent = Turn(), list[int]()
    outbox = Outbox(turn.soon)
    for _ in range(2):
        for number in range(5):
            outbox.add(Sender(sent, number))
        assert not sent
        assert len(turn.due) == 1, "one call for all of them"
        turn.end()
        assert sent == list(range(5))
        sent.clear()


def test_a_long_turn_does_not_keep_the_first_waiting() -> None:
    turn, sent = Turn(), list[int]()
    outbox = Outbox(turn.soon)
    for number in range(TOGETHER_MAX + 1):
        outbox.add(Sender(sent, number))
    assert sent == list(range(TOGETHER_MAX))
    turn.end()
    assert sent == list(range(TOGETHER_MAX + 1))


def test_after_a_turn_with_one_alone_some_are_sent_at_once_and_then_it_is_tried_again() -> None:
    turn, sent = Turn(), list[int]()
    outbox = Outbox(turn.soon)
    outbox.add(Sender(sent, 0))
    turn.end()
    for number in range(AT_ONCE):
        outbox.add(Sender(sent, 1 + number))
    assert sent == list(range(1 + AT_ONCE))
    assert not turn.due
    outbox.add(Sender(sent, 100))
    outbox.add(Sender(sent, 101))
    assert sent[-1] == AT_ONCE
    turn.end()
    assert sent[-2:] == [100, 101]
    outbox.add(Sender(sent, 102))
    assert sent[-1] == 101, "a turn with two is followed by one that gathers"


def test_one_that_fails_does_not_keep_the_others_waiting() -> None:
    class Failing:
        def send_ready(self) -> None:
            raise RuntimeError("a bug")

    turn, sent = Turn(), list[int]()
    outbox = Outbox(turn.soon)
    for sender in (Sender(sent, 1), Failing(), Sender(sent, 2), Sender(sent, 3)):
        outbox.add(sender)
    with pytest.raises(RuntimeError, match="a bug"):
        turn.end()
    turn.end()
    assert sent == [1, 2, 3]


def test_small_answers_of_connections_wait_for_the_end_of_the_turn_and_large_ones_do_not() -> None:
    turn, world = Turn(), World()
    world.ledger.outbox = Outbox(turn.soon)

    def answer(connection: Connection, frame: memoryview) -> list[bytes]:
        return [bytes(frame) * 1000] if frame == b"large" else [bytes(frame)]

    small, large = Link(answer, world=world), Link(answer, world=world)
    small.send(framed(b"one") + framed(b"two"))
    large.send(framed(b"large"))
    assert (small.answers, large.answers) == (b"", b"large" * 1000)
    large.send(framed(b"after"))
    turn.end()
    assert (small.answers, large.answers) == (b"onetwo", b"large" * 1000 + b"after")


def test_a_connection_that_closes_or_dies_within_the_turn() -> None:
    turn, world = Turn(), World()
    world.ledger.outbox = Outbox(turn.soon)

    def answer(connection: Connection, frame: memoryview) -> list[bytes]:
        return [bytes(frame)]

    closing, dead = Link(answer, world=world), Link(answer, world=world)
    closing.send(framed(b"last words"))
    dead.send(framed(b"unheard"))
    closing.connection.close()
    dead.lose()
    assert closing.answers == b"last words", "what is answered leaves before it closes"
    turn.end()
    assert dead.answers == b""
