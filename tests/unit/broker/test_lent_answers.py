"""Answers with bytes that stay in their file: they leave by another way, and in their order with all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.unit.broker.fakes import FakeTransport, Link, World, framed
from tidelog.broker.connection import Connection
from tidelog.kernel.ports import Part


class Lent:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data


class FakeSender:
    """Takes so many bytes at a time; the peer reads what the transport and it have written in one row."""

    def __init__(self, transport: FakeTransport, sent: Callable[[], None], takes: int) -> None:
        self._transport = transport
        self._sent = sent
        self._takes = takes
        self._rest = b""
        self.uses = 0
        self.is_closed = False

    @property
    def unsent_bytes(self) -> int:
        return len(self._rest)

    def send(self, parts: Sequence[Part], turn_bytes: int) -> bool:
        assert not self._rest and not self._transport.unread, "somebody else has something to send"
        self.uses += 1
        self._rest = b"".join(part if isinstance(part, bytes) else part.read() for part in parts)  # type: ignore[union-attr]
        return self._go_on()

    def _go_on(self) -> bool:
        taken, self._rest = self._rest[: self._takes], self._rest[self._takes :]
        self._transport.written.append(taken)
        return not self._rest

    def peer_reads(self) -> None:
        while self._rest:
            if self._go_on():
                self._sent()

    def close(self) -> None:
        self.is_closed = True
        self._rest = b""


class Sending:
    """A connection whose requests are answered with lent bytes if they begin with an L."""

    def __init__(self, takes: int = 1 << 30, *, has_senders: bool = True) -> None:
        self.senders: list[FakeSender] = []
        self._takes = takes
        listener = World().listener(self._handle)
        if has_senders:
            listener.file_sender = self._make  # type: ignore[assignment]
        self.link = Link(self._handle, listener=listener)

    def _make(self, transport: FakeTransport, sent: Callable[[], None]) -> FakeSender:
        self.senders.append(FakeSender(transport, sent, self._takes))
        return self.senders[-1]

    def _handle(self, connection: Connection, frame: memoryview) -> Sequence[Part] | bytes | None:
        if frame == b"close":
            connection.close()
            return None
        body = bytes(frame)
        return [b"<", Lent(body), b">"] if body.startswith(b"L") else body

    def send(self, *bodies: bytes) -> None:
        self.link.send(b"".join(map(framed, bodies)))


def test_what_is_lent_goes_to_the_sender_and_all_else_to_the_transport() -> None:
    world = Sending()
    world.send(b"one")
    assert not world.senders, "no descriptor for who does not need one"
    world.link.transport.peer_reads()
    world.send(b"Lent")
    world.send(b"Lent again")
    world.send(b"two")
    assert world.link.answers == b"one<Lent><Lent again>two"
    assert [sender.uses for sender in world.senders] == [2]


def test_behind_what_the_transport_still_has_it_is_read() -> None:
    world = Sending()
    world.send(b"one")
    world.send(b"Lent")
    assert world.link.answers == b"one<Lent>" and [sender.uses for sender in world.senders] == [0]


def test_without_a_sender_it_is_read() -> None:
    world = Sending(has_senders=False)
    world.send(b"Lent", b"two")
    assert world.link.answers == b"<Lent>two"


@pytest.mark.parametrize("takes", [1, 3, 1000])
def test_what_follows_waits_for_the_sender(takes: int) -> None:
    world = Sending(takes)
    world.send(b"L" * 1500, b"two", b"Lent", b"three")
    world.send(b"four")
    assert len(world.link.answers) == min(takes, 1502)
    assert not world.link.connection.is_idle
    (sender,) = world.senders
    while sender.unsent_bytes:
        sender.peer_reads()
        world.link.transport.peer_reads()
    assert world.link.answers == b"<" + b"L" * 1500 + b">two<Lent>threefour"
    assert world.link.connection.is_idle


def test_closing_waits_for_the_sender() -> None:
    world = Sending(10)
    world.send(b"L" * 50, b"close")
    assert not world.link.transport.closed
    world.senders[0].peer_reads()
    assert (world.link.transport.closed, world.link.answers) == ("close", b"<" + b"L" * 50 + b">")


def test_a_lost_connection_closes_its_sender() -> None:
    world = Sending(10)
    world.send(b"L" * 50)
    world.link.lose()
    assert world.senders[0].is_closed


def test_a_peer_that_takes_nothing_for_long_is_idle() -> None:
    world = Sending(10)
    connection = world.link.connection
    world.send(b"L" * 50)
    now_s = world.link.clock.now_s
    assert connection.idle_since_s(now_s) == now_s
    assert connection.idle_since_s(now_s + 500) == now_s
    world.senders[0]._go_on()
    assert connection.idle_since_s(now_s + 900) == now_s + 900
