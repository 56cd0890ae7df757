"""Who connects is let in together, not one in each turn of the loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tidelog.kernel.ports import SocketOptions
from tidelog.runtime import accepting
from tidelog.runtime.loop import new_event_loop
from tidelog.runtime.net import OsListener, OsNet

COUNT = 3 * accepting.TURN_MAX


class Guest(asyncio.Protocol):
    def __init__(self, guests: list[Guest]) -> None:
        self.guests = guests
        self.has_ended = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport
        self.guests.append(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended.set()


Scene = Callable[[OsListener, list[Guest]], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Iterator[Callable[[Scene], None]]:
    loop = new_event_loop()

    async def whole(scene: Scene) -> None:
        guests: list[Guest] = []
        listener = await OsNet().listen("127.0.0.1", 0, lambda: Guest(guests), SocketOptions(backlog=1024))
        try:
            await scene(listener, guests)
        finally:
            listener.close()
            for guest in guests:
                guest.transport.abort()
                await guest.has_ended.wait()

    def play(scene: Scene) -> None:
        loop.run_until_complete(asyncio.wait_for(whole(scene), 30))

    yield play
    loop.close()


def dialled(listener: OsListener, count: int) -> list[socket.socket]:
    return [socket.create_connection((listener.host, listener.port)) for _ in range(count)]


async def turn() -> None:
    """One of the loop: what is ready now has had its turn when this ends."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(0, done.set_result, None)
    await done


def test_all_who_wait_are_let_in_within_a_few_turns(play: Callable[[Scene], None]) -> None:
    async def scene(listener: OsListener, guests: list[Guest]) -> None:
        clients = dialled(listener, COUNT)
        for _ in range(12):
            await turn()
        assert len(guests) == COUNT
        for client in clients:
            client.close()

    play(scene)


def test_they_come_in_order_and_are_served(play: Callable[[Scene], None]) -> None:
    async def scene(listener: OsListener, guests: list[Guest]) -> None:
        loop = asyncio.get_running_loop()
        clients = dialled(listener, 5)
        for number, client in enumerate(clients):
            client.setblocking(False)
            await loop.sock_sendall(client, b"hello %d" % number)
            assert await loop.sock_recv(client, 100) == b"hello %d" % number
        assert [guest.transport.get_extra_info("peername") for guest in guests] == [
            client.getsockname() for client in clients
        ]
        made = guests[0].transport.get_extra_info("socket")
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for client in clients:
            client.close()

    play(scene)


def test_whoever_comes_after_the_close_is_refused(play: Callable[[Scene], None]) -> None:
    async def scene(listener: OsListener, guests: list[Guest]) -> None:
        listener.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            dialled(listener, 1)

    play(scene)


def fail_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The next accept ends with that error, the others are as ever."""
    whole = socket.socket.accept

    def accept(listening: socket.socket) -> tuple[socket.socket, Any]:
        monkeypatch.setattr(socket.socket, "accept", whole)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "accept", accept)


async def answered(listener: OsListener) -> None:
    loop = asyncio.get_running_loop()
    (client,) = dialled(listener, 1)
    client.setblocking(False)
    await loop.sock_sendall(client, b"still there?")
    assert await loop.sock_recv(client, 100) == b"still there?"
    client.close()


def test_without_descriptors_it_rests_and_goes_on(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "_REST_S", 0.01)

    async def scene(listener: OsListener, guests: list[Guest]) -> None:
        fail_once(monkeypatch, errno.EMFILE)
        await answered(listener)

    play(scene)
    assert "Too many open files" in caplog.text


def test_an_error_of_one_that_waited_is_nobody_elses(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(listener: OsListener, guests: list[Guest]) -> None:
        errors: list[dict[str, Any]] = []
        # A node ends by what arrives there.
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        fail_once(monkeypatch, errno.EPROTO)
        await answered(listener)
        assert errors == []

    play(scene)
