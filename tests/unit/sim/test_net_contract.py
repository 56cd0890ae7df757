"""What every Net owes its users, on the simulated network, on asyncio's sockets and on uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from tidelog.kernel.errors import ListenError
from tidelog.kernel.ports import Net
from tidelog.runtime.loop import new_event_loop
from tidelog.runtime.net import OsNet
from tidelog.sim.loop import run, sim_loop
from tidelog.sim.net import SimNet

Scenario = Callable[[Net], Coroutine[Any, Any, None]]


def on_sim(scenario: Scenario) -> None:
    async def main() -> None:
        await scenario(SimNet(sim_loop()).host("n1"))

    for seed in range(5):
        run(main(), seed)


def on_asyncio(scenario: Scenario) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(OsNet()), 30))


def on_uvloop(scenario: Scenario) -> None:
    pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(OsNet()), 30))


@pytest.fixture(params=[on_sim, on_asyncio, on_uvloop])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    chosen: Callable[[Scenario], None] = request.param
    return chosen


class Collector(asyncio.Protocol):
    """Keeps what it hears, in order, and lets a test wait for it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.made = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.keep_half_open = False
        self._more = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none, by its classes
        self.events.append("made")
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        self.data += data
        self._more.set()

    def eof_received(self) -> bool:
        self.events.append("eof")
        self._more.set()
        return self.keep_half_open

    def pause_writing(self) -> None:
        self.events.append("pause")
        self._more.set()

    def resume_writing(self) -> None:
        self.events.append("resume")
        self._more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._more.clear()
            await self._more.wait()


class BufferedCollector(asyncio.BufferedProtocol):
    """Reads into one small buffer of its own that it reuses, as the broker does."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.data = bytearray()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.data += self.buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def pair(net: Net) -> tuple[Collector, Collector]:
    """(client, server) of one connection."""
    servers: list[Collector] = []

    def accept() -> Collector:
        servers.append(Collector())
        return servers[-1]

    listener = await net.listen("127.0.0.1", 0, accept)
    client = Collector()
    await net.connect("127.0.0.1", listener.port, lambda: client)
    while not servers:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await servers[0].made
    listener.close()
    return client, servers[0]


async def end(*collectors: Collector) -> None:
    for collector in collectors:
        collector.transport.abort()
        await collector.lost


def test_bytes_arrive_whole_and_in_order(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)
        sent = bytes(range(256)) * 4000
        for start in range(0, len(sent), 100_000):
            client.transport.write(sent[start : start + 100_000])
        await server.until(lambda: len(server.data) == len(sent))
        assert server.data == sent
        server.transport.writelines([b"an", bytearray(b"sw"), memoryview(b"er")])
        await client.until(lambda: len(client.data) == 6)
        assert client.data == b"answer"
        await end(client, server)

    play(scenario)


def test_a_buffered_protocol_reads_into_its_own_buffer(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        servers: list[BufferedCollector] = []

        def accept() -> BufferedCollector:
            servers.append(BufferedCollector())
            return servers[-1]

        listener = await net.listen("127.0.0.1", 0, accept)
        client = Collector()
        transport = await net.connect("127.0.0.1", listener.port, lambda: client)
        transport.write(b"0123456789" * 50)
        transport.close()
        assert await client.lost is None
        assert await servers[0].lost is None
        assert servers[0].data == b"0123456789" * 50
        listener.close()

    play(scenario)


def test_close_lets_the_last_bytes_through(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)
        client.transport.write(b"x" * 500_000)
        client.transport.close()
        assert client.transport.is_closing()
        assert await server.lost is None
        assert await client.lost is None
        assert server.data == b"x" * 500_000
        assert server.events == ["made", "eof", "lost"]
        assert client.events[-1] == "lost"

    play(scenario)


def test_a_half_closed_connection_can_still_answer(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)
        server.keep_half_open = True
        assert client.transport.can_write_eof()
        client.transport.write(b"question")
        client.transport.write_eof()
        await server.until(lambda: "eof" in server.events)
        assert server.data == b"question"
        server.transport.write(b"answer")
        server.transport.close()
        assert await client.lost is None
        assert client.data == b"answer"

    play(scenario)


def test_a_reader_that_pauses_stops_the_writer(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)
        server.transport.pause_reading()
        sent = 0
        while "pause" not in client.events:
            client.transport.write(b"y" * 1_000_000)
            sent += 1_000_000
            await asyncio.sleep(0)
            assert sent < 1 << 30
        assert client.transport.get_write_buffer_size() > 0
        assert not server.transport.is_reading()
        server.transport.resume_reading()
        await client.until(lambda: "resume" in client.events)
        await server.until(lambda: len(server.data) == sent)
        assert client.transport.get_write_buffer_size() == 0
        await end(client, server)

    play(scenario)


def test_low_limits_pause_at_the_first_byte(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)
        client.transport.set_write_buffer_limits(high=0)
        server.transport.pause_reading()
        while "pause" not in client.events:
            client.transport.write(b"z" * 1_000_000)
            await asyncio.sleep(0)
        await end(client, server)

    play(scenario)


def test_abort_drops_what_was_queued(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)
        server.transport.pause_reading()
        client.transport.write(b"x" * 30_000_000)
        client.transport.abort()
        assert await client.lost is None
        server.transport.resume_reading()
        await server.lost
        assert len(server.data) < 30_000_000

    play(scenario)


def test_the_addresses_of_both_ends_agree(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)
        for here, there in ((client, server), (server, client)):
            assert here.transport.get_extra_info("sockname") == there.transport.get_extra_info("peername")
        assert server.transport.get_extra_info("sockname")[0] == "127.0.0.1"
        assert server.transport.get_extra_info("nonsense", 5) == 5
        await end(client, server)

    play(scenario)


def test_nobody_there_is_a_connection_error(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        listener = await net.listen("127.0.0.1", 0, Collector)
        listener.close()
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionRefusedError):
            await net.connect("127.0.0.1", listener.port, Collector)

    play(scenario)


def test_a_taken_port_is_a_sentence(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        listener = await net.listen("127.0.0.1", 0, Collector)
        assert listener.port > 0
        assert listener.host == "127.0.0.1"
        with pytest.raises(ListenError, match=rf"cannot listen on 127.0.0.1:{listener.port}: another program"):
            await net.listen("127.0.0.1", listener.port, Collector)
        listener.close()

    play(scenario)


def test_a_closed_listener_keeps_its_connections(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        client, server = await pair(net)  # pair() has closed the listener
        client.transport.write(b"still here")
        await server.until(lambda: len(server.data) == 10)
        await end(client, server)

    play(scenario)


def test_asyncio_streams_run_on_it(play: Callable[[Scenario], None]) -> None:
    async def scenario(net: Net) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = await reader.readline()
            writer.write(line.upper())
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            done.set_result(None)

        listener = await net.listen(
            "127.0.0.1", 0, lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), serve, loop=loop)
        )
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport = await net.connect("127.0.0.1", listener.port, lambda: protocol)
        transport.write(b"hello\n")
        assert await reader.read() == b"HELLO\n"
        transport.close()
        await done
        listener.close()

    play(scenario)
