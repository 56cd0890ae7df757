"""Bytes from a file to a socket without a copy: in order with what is around them, at the peer's pace, and never
others than were lent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.test_disk import MakeDisk, make_disk
from tests.unit.runtime.test_disk_reads import is_in_memory, make_cold
from tidelog.kernel.ports import FileSender
from tidelog.runtime.cachestat import find_cachestat
from tidelog.runtime.disk import OsDisk, OsFile
from tidelog.runtime.loop import new_event_loop
from tidelog.runtime.net import OsNet
from tidelog.runtime.sending import CAN_SEND, FileSenders

__all__ = ["make_disk"]
pytestmark = pytest.mark.skipif(not CAN_SEND, reason="no sendfile here")
CONTENT = os.urandom(6 << 20)


@pytest.fixture
def disk(make_disk: MakeDisk) -> OsDisk:
    return make_disk()


@pytest.fixture
def file(disk: OsDisk, tmp_path: Path) -> OsFile:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([CONTENT])
    file.sync()
    return file


class Accepted(asyncio.Protocol):
    def __init__(self, made: asyncio.Future[asyncio.Transport]) -> None:
        self._made = made
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.set_result(transport)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


Test = Callable[[asyncio.Transport, socket.socket, Accepted], Coroutine[Any, Any, None]]


def connected(test: Test, loop_factory: Any = new_event_loop) -> None:
    """Run a test with the broker's transport and the peer's socket of one connection."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[asyncio.Transport] = loop.create_future()
        accepted = Accepted(made)
        listener = await OsNet().listen("127.0.0.1", 0, lambda: accepted)
        peer = socket.socket()
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", listener.port))
        transport = await made
        try:
            await test(transport, peer, accepted)
        finally:
            transport.abort()
            peer.close()
            listener.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def make_sender(transport: asyncio.Transport, sent: Callable[[], None]) -> FileSender:
    sender = FileSenders().make(transport, sent)
    assert sender is not None
    return sender


async def receive(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = await asyncio.get_running_loop().sock_recv(peer, min(1 << 20, size - len(data)))
        if not part:
            break
        data += part
    return bytes(data)


@pytest.mark.parametrize("loop_factory", [new_event_loop, asyncio.new_event_loop])
def test_parts_arrive_in_order_at_the_pace_of_the_peer(file: OsFile, loop_factory: object) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        sent = asyncio.Event()
        sender = make_sender(transport, sent.set)
        first, second = file.lend(5, 5_000_000), file.lend(1_000_000, 300_000)
        assert first is not None and second is not None
        assert not sender.send([b"head", first, b"between", second, b"tail"], 1 << 30)
        assert sender.unsent_bytes > 1_000_000
        whole = b"head" + CONTENT[5:5_000_005] + b"between" + CONTENT[1_000_000:1_300_000] + b"tail"
        assert await receive(peer, len(whole)) == whole
        await sent.wait()
        assert sender.unsent_bytes == 0
        transport.write(b"after")
        assert await receive(peer, 5) == b"after"
        sender.close()

    connected(test, loop_factory)


def test_no_more_leaves_in_a_turn_than_is_said(file: OsFile) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        sent = asyncio.Event()
        sender = make_sender(transport, sent.set)
        part = file.lend(0, 100_000)
        assert part is not None and not sender.send([part], 40_000)
        assert sender.unsent_bytes == 60_000
        assert await receive(peer, 40_000) == CONTENT[:40_000]
        await sent.wait()
        assert await receive(peer, 60_000) == CONTENT[40_000:100_000]
        sender.close()

    connected(test)


def test_what_fits_leaves_at_once(file: OsFile) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        sender = make_sender(transport, pytest.fail)
        part = file.lend(0, 1000)
        assert part is not None and sender.send([part, b"tail"], 1 << 30)
        assert await receive(peer, 1004) == CONTENT[:1000] + b"tail"
        sender.close()

    connected(test)


def test_a_peer_that_takes_nothing_is_not_tried_in_every_turn(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        tries: list[int] = []
        sendfile = os.sendfile

        def counted(*where: int) -> int:
            tries.append(1)
            return sendfile(*where)

        monkeypatch.setattr(os, "sendfile", counted)
        sender = make_sender(transport, pytest.fail)
        part = file.lend(0, len(CONTENT))
        assert part is not None and not sender.send([part], 1 << 30)
        left = len(CONTENT)
        while sender.unsent_bytes < left:  # its buffers fill up
            left = sender.unsent_bytes
            await turns(20)
        found = len(tries)
        await turns(100)
        # Hardly ever more: the system may yet have taken some of what it has.
        assert len(tries) - found < 10
        sender.close()

    connected(test)


async def turns(number: int) -> None:
    """Of the loop, each of which looks at its sockets."""
    for _ in range(number):
        await asyncio.sleep(0)


def test_a_sender_that_is_closed_between_two_tries_does_nothing_more(file: OsFile) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        sent: list[str] = []
        sender = make_sender(transport, lambda: sent.append("all"))
        part = file.lend(0, len(CONTENT))
        assert part is not None and not sender.send([part], 1 << 30)
        sender.close()
        await turns(5)
        assert sent == [] and sender.unsent_bytes == 0

    connected(test)


def test_a_file_that_is_removed_meanwhile_is_sent_to_its_end(disk: OsDisk, file: OsFile) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        sender = make_sender(transport, lambda: None)
        part = file.lend(0, len(CONTENT))
        assert part is not None and not sender.send([part], 1 << 30)
        del part
        file.close()
        disk.remove(file.path)
        assert file.fd >= 0
        assert await receive(peer, len(CONTENT)) == CONTENT
        sender.close()
        assert file.fd < 0, "nobody has it any more, so it is closed"

    connected(test)


def test_what_is_closed_in_the_middle_gives_back_what_it_was_lent(file: OsFile) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        senders = FileSenders(most=1)
        sender = senders.make(transport, pytest.fail)
        part = file.lend(0, len(CONTENT))
        assert sender is not None and part is not None and not sender.send([part], 1 << 30)
        del part
        assert file.is_pinned
        assert senders.make(transport, pytest.fail) is None, "one is the most"
        sender.close()
        assert not file.is_pinned
        again = senders.make(transport, pytest.fail)
        assert again is not None
        again.close()

    connected(test)


@pytest.mark.parametrize("how", ["the peer is gone", "the file became shorter"])
def test_what_cannot_be_sent_ends_the_connection(file: OsFile, how: str) -> None:
    async def test(transport: asyncio.Transport, peer: socket.socket, accepted: Accepted) -> None:
        sender = make_sender(transport, lambda: None)
        part = file.lend(0, len(CONTENT))
        assert part is not None and not sender.send([part], 1 << 30)
        del part
        if how == "the peer is gone":
            peer.close()
        else:
            file.truncate(10)
            await receive(peer, len(CONTENT))
        await accepted.lost.wait()
        assert not file.is_pinned
        sender.close()

    connected(test)


def test_only_what_is_in_memory_is_lent(file: OsFile) -> None:
    make_cold(file)
    assert file.lend(0, 1 << 20) is None
    assert file.read(0, 1 << 20) == CONTENT[: 1 << 20]
    lent = file.lend(0, 1 << 20)
    assert lent is not None and lent.read() == CONTENT[: 1 << 20]


def test_without_cachestat_it_looks_at_some_bytes(disk: OsDisk, file: OsFile) -> None:
    assert is_in_memory(file, 0)
    disk.is_cached = None
    lent = file.lend(7, 1 << 20)
    assert lent is not None and len(lent) == 1 << 20
    make_cold(file)
    assert file.lend(7, 1 << 20) is None


def test_cachestat_counts_the_pages_of_an_unaligned_piece(file: OsFile) -> None:
    is_cached = find_cachestat()
    if is_cached is None:
        pytest.skip("this system has no cachestat")
    assert is_cached(file.fd, 4095, 2) and is_cached(file.fd, 0, len(CONTENT))
    assert not is_cached(file.fd, 0, len(CONTENT) + 4096)
