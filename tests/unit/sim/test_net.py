"""What only the simulated network does: faults, crashes, partitions, and the same again from the same seed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from tidelog.kernel.errors import ListenError
from tidelog.sim.loop import run, sim_loop
from tidelog.sim.net import NetOptions, SimNet
from tidelog.sim.process import SimProcess


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.is_lost = False
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.error = exc

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)


async def join(net: SimNet, client_host: str = "a", server_host: str = "b") -> tuple[Peer, Peer]:
    servers: list[Peer] = []

    def accept() -> Peer:
        servers.append(Peer())
        return servers[-1]

    listener = await net.host(server_host).listen("0.0.0.0", 0, accept)
    client = Peer()
    await net.host(client_host).connect(server_host, listener.port, lambda: client)
    return client, servers[0]


Scenario = Callable[[SimNet], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *, seed: int = 1, options: NetOptions | None = None) -> None:
    async def main() -> None:
        await scenario(SimNet(sim_loop(), options=options))

    run(main(), seed)


def test_frames_split_anywhere() -> None:
    sizes: set[int] = set()

    async def scenario(net: SimNet) -> None:
        client, server = await join(net)
        for _ in range(200):
            client.transport.write(b"12345678")
            await asyncio.sleep(0.1)
        assert server.data == b"12345678" * 200
        sizes.update(len(chunk) for chunk in server.chunks)

    play(scenario)
    assert sizes == set(range(1, 9))


def test_a_buffer_that_is_reused_too_early_arrives_spoilt() -> None:
    async def scenario(net: SimNet) -> None:
        client, server = await join(net)
        buffer = bytearray(b"first")
        client.transport.write(memoryview(buffer))
        buffer[:] = b"other"
        await asyncio.sleep(1)
        assert server.data == b"other"

    play(scenario)


def test_a_queued_bytearray_cannot_be_resized_until_it_left() -> None:
    async def scenario(net: SimNet) -> None:
        client, _ = await join(net)
        buffer = bytearray(b"first")
        client.transport.write(buffer)
        with pytest.raises(BufferError):
            buffer.clear()
        await asyncio.sleep(1)
        buffer.clear()

    play(scenario)


def test_a_cut_connection_is_reset_at_both_ends_and_loses_bytes() -> None:
    async def scenario(net: SimNet) -> None:
        client, server = await join(net)
        client.transport.write(b"lost")
        await asyncio.sleep(1)
        assert isinstance(client.error, ConnectionResetError)
        assert isinstance(server.error, ConnectionResetError)
        assert server.data == b""
        assert net.connection_count() == 0

    play(scenario, options=NetOptions(cut_connection=1.0))


def test_a_refused_connection() -> None:
    async def scenario(net: SimNet) -> None:
        with pytest.raises(ConnectionRefusedError):
            await join(net)

    play(scenario, options=NetOptions(refuse_connect=1.0))


def test_a_delay_holds_back_what_comes_after_it_too() -> None:
    async def scenario(net: SimNet) -> None:
        client, server = await join(net)
        for number in range(50):
            client.transport.write(bytes([number]))
            await asyncio.sleep(0.01)
        await asyncio.sleep(300)
        assert server.data == bytes(range(50))
        assert sim_loop().time() > 300

    play(scenario, options=NetOptions(delay=0.3))


class TestPartition:
    def test_bytes_wait_until_it_heals(self) -> None:
        async def scenario(net: SimNet) -> None:
            client, server = await join(net)
            net.partition("a", "b")
            client.transport.write(b"wait")
            await asyncio.sleep(60)
            assert server.data == b""
            assert not client.is_lost
            net.heal("b", "a")
            await asyncio.sleep(1)
            assert server.data == b"wait"

        play(scenario)

    def test_one_way(self) -> None:
        async def scenario(net: SimNet) -> None:
            client, server = await join(net)
            net.partition("a", "b", both_ways=False)
            client.transport.write(b"wait")
            server.transport.write(b"go")
            await asyncio.sleep(60)
            assert server.data == b""
            assert client.data == b"go"

        play(scenario)

    def test_other_pairs_go_on_and_connecting_times_out(self) -> None:
        async def scenario(net: SimNet) -> None:
            net.partition("a", "b")
            client, server = await join(net, "c", "b")
            client.transport.write(b"x")
            with pytest.raises(TimeoutError):
                await join(net, "a", "b")
            assert server.data == b"x"

        play(scenario)

    def test_a_reset_waits_too(self) -> None:
        async def scenario(net: SimNet) -> None:
            client, server = await join(net)
            net.partition("a", "b")
            client.transport.abort()
            await asyncio.sleep(60)
            assert not server.is_lost
            net.heal()
            await asyncio.sleep(1)
            assert server.is_lost

        play(scenario)

    def test_drawn_ones_heal_by_themselves(self) -> None:
        async def scenario(net: SimNet) -> None:
            client, server = await join(net)
            for _ in range(100):
                client.transport.write(b"x")
                await asyncio.sleep(1)
            await asyncio.sleep(1000)
            assert server.data == b"x" * 100

        play(scenario, options=NetOptions(partition_hosts=0.3))


class TestCrash:
    def test_the_other_end_is_reset_and_the_dead_hear_nothing(self) -> None:
        async def scenario(net: SimNet) -> None:
            client, server = await join(net)
            server.transport.write(b"never sent")
            net.crash("b")
            server.transport.write(b"from the grave")
            await asyncio.sleep(10)
            assert isinstance(client.error, ConnectionResetError)
            assert client.data == b""
            assert not server.is_lost

        play(scenario)

    def test_silently_the_other_end_learns_it_when_it_sends(self) -> None:
        async def scenario(net: SimNet) -> None:
            client, _ = await join(net)
            net.crash("b", silent=True)
            await asyncio.sleep(100)
            assert not client.is_lost
            client.transport.write(b"anybody?")
            await asyncio.sleep(1)
            assert isinstance(client.error, ConnectionResetError)

        play(scenario)

    def test_the_old_host_is_dead_for_good_and_a_new_one_takes_its_name(self) -> None:
        async def scenario(net: SimNet) -> None:
            old = net.host("b")
            listener = await old.listen("", 9092, Peer)
            net.crash("b")
            with pytest.raises(ConnectionRefusedError):
                await net.host("a").connect("b", 9092, Peer)
            with pytest.raises(ConnectionError):
                await old.listen("", 9092, Peer)
            with pytest.raises(ConnectionError):
                await old.connect("a", 9092, Peer)
            await net.host("b").listen("", 9092, Peer)
            listener.close()  # the dead one's: the new one stays
            await net.host("a").connect("b", 9092, Peer)

        play(scenario)

    def test_a_killed_process_serves_no_more_while_the_wire_goes_on(self) -> None:
        async def scenario(net: SimNet) -> None:
            heard: list[str] = []

            class Server(Peer):
                def data_received(self, data: bytes) -> None:
                    asyncio.get_running_loop().call_later(5, heard.append, "late")
                    heard.append("now")

            async def node() -> None:
                await net.host("b").listen("", 9092, Server)

            process = SimProcess(sim_loop(), "b")
            await process.start(node())
            client = Peer()
            await net.host("a").connect("b", 9092, lambda: client)
            client.transport.write(b"x")
            await asyncio.sleep(1)
            process.kill()
            net.crash("b")
            await asyncio.sleep(10)
            assert heard == ["now"]
            assert client.is_lost

        play(scenario)


def test_a_connect_that_is_given_up_leaves_no_connection() -> None:
    async def scenario(net: SimNet) -> None:
        servers: list[Peer] = []

        def accept() -> Peer:
            servers.append(Peer())
            return servers[-1]

        await net.host("b").listen("", 9092, accept)
        for wait_ms in range(20):
            task = asyncio.create_task(net.host("a").connect("b", 9092, Peer))
            await asyncio.sleep(wait_ms / 10_000)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result().abort()
        await asyncio.sleep(1)
        assert servers
        assert all(server.is_lost for server in servers)

    play(scenario)


def test_a_failing_protocol_loses_its_connection_and_is_reported() -> None:
    async def scenario(net: SimNet) -> None:
        client, server = await join(net)
        server.data_received = lambda data: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        client.transport.write(b"x")
        await asyncio.sleep(1)
        assert isinstance(server.error, ZeroDivisionError)
        assert client.is_lost
        assert isinstance(sim_loop().errors.pop()["exception"], ZeroDivisionError)

    play(scenario)


def test_a_foreign_address_cannot_be_listened_on() -> None:
    async def scenario(net: SimNet) -> None:
        with pytest.raises(ListenError, match="a has no such address"):
            await net.host("a").listen("b", 9092, Peer)

    play(scenario)


_DIGEST = """
import asyncio
from tidelog.sim.loop import run, sim_loop
from tidelog.sim.net import NetOptions, SimNet

class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(data)

async def main():
    options = NetOptions(cut_connection=0.01, delay=0.1, partition_hosts=0.01, refuse_connect=0.1)
    net = SimNet(sim_loop(), options=options)
    await net.host("s").listen("", 1, Echo)
    async def talk(name):
        for _ in range(20):
            try:
                transport = await net.host(name).connect("s", 1, asyncio.Protocol)
            except OSError:
                continue
            for n in range(10):
                transport.write(bytes(n + 1))
                await asyncio.sleep(0.1)
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(talk(name))
    return net.digest

print([run(main(), seed) for seed in range(5)])
"""


def test_two_hash_seeds_give_one_run() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(set(outputs.pop().strip("[]\n").split(","))) == 5
