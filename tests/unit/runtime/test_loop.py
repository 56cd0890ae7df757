from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time

import pytest

from tidelog.kernel.errors import ListenError
from tidelog.kernel.ports import SocketOptions
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.loop import new_event_loop, run
from tidelog.runtime.net import UNSENT_BYTES_MAX, OsNet
from tidelog.runtime.workers import ThreadWorkers


async def _loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_is_used_where_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert run(_loop_module()).startswith("uvloop")


def test_asyncio_serves_where_uvloop_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(_loop_module()).startswith("asyncio")


def test_a_loop_runs_in_any_thread() -> None:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(run(_loop_module())))
    thread.start()
    thread.join(30)
    assert len(results) == 1


def test_work_runs_beside_the_loop_and_fails_to_its_caller() -> None:
    async def main() -> None:
        workers = ThreadWorkers(1)
        assert await workers.run(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 / 0)
        workers.close()
        with pytest.raises(AssertionError):
            await workers.run(threading.get_ident)

    run(main())


def test_the_clocks_are_the_systems() -> None:
    clock = SystemClock()
    before = (time.time_ns() // 1_000_000, time.monotonic())
    seen = (clock.wall_ms(), clock.monotonic_s())
    after = (time.time_ns() // 1_000_000, time.monotonic())
    assert before[1] <= seen[1] <= after[1]
    assert abs(seen[0] - before[0]) < 3_600_000


@pytest.mark.parametrize("loop_factory", [new_event_loop, asyncio.new_event_loop])
def test_small_packets_leave_at_once_on_both_ends(loop_factory: object) -> None:
    seen: list[int] = []

    class Look(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock = transport.get_extra_info("socket")
            seen.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def main() -> None:
        listener = await OsNet().listen("127.0.0.1", 0, Look)
        await OsNet().connect("127.0.0.1", listener.port, Look)
        while len(seen) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        listener.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:  # type: ignore[arg-type]
        runner.run(main())
    assert all(seen)


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="this system has no TCP_NOTSENT_LOWAT")
def test_accepted_connections_have_the_listeners_buffers() -> None:
    seen: list[tuple[int, ...]] = []

    class Look(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock = transport.get_extra_info("socket")
            seen.append(
                (
                    sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
                    sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
                    sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT),
                )
            )

    async def main() -> None:
        listener = await OsNet().listen("127.0.0.1", 0, Look, SocketOptions(send_bytes=50_000, receive_bytes=40_000))
        transport = await OsNet().connect("127.0.0.1", listener.port, asyncio.Protocol)
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        transport.abort()
        listener.close()

    run(main())
    assert seen == [(100_000, 80_000, UNSENT_BYTES_MAX)]  # the system doubles what it is asked for


def test_an_empty_host_listens_on_every_address() -> None:
    async def main() -> None:
        listener = await OsNet().listen("", 0, asyncio.Protocol)
        (await OsNet().connect("127.0.0.1", listener.port, asyncio.Protocol)).abort()
        if socket.has_dualstack_ipv6():
            (await OsNet().connect("::1", listener.port, asyncio.Protocol)).abort()
        listener.close()

    run(main())


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("no-such-host.invalid", 9092, "not known here"),
        ("192.0.2.1", 9092, "this machine has no such address"),
        ("127.0.0.1", 70_000, "0 to 65535"),
        ("", 70_000, "0 to 65535"),
    ],
)
def test_an_impossible_address_is_a_sentence(host: str, port: int, reason: str) -> None:
    async def main() -> None:
        with pytest.raises(ListenError, match=reason):
            await OsNet().listen(host, port, asyncio.Protocol)

    run(main())
