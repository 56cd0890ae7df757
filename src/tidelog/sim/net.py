"""The Net port in memory: hosts, listeners and connections on virtual time, with faults drawn from one random source.

`SimNet` is the wire between all hosts and belongs to the harness; `SimNet.host(name)` is what one node is given as its
Net. A crash ends that host object for good: the node that restarts gets a new one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from tidelog.kernel.errors import ListenError
from tidelog.kernel.ports import SocketOptions
from tidelog.sim.loop import SimLoop
from tidelog.sim.transport import SimTransport

if TYPE_CHECKING:
    from ssl import SSLContext

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_WILDCARDS: Final = ("", "0.0.0.0", "::")
_FIRST_FREE_PORT: Final = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class NetOptions:
    """How the network behaves. Probabilities are per delivery (a chunk that arrives), refuse_connect per attempt."""

    latency_ms_min: float = 0.05
    latency_ms_max: float = 1.0
    split: float = 0.3
    """That what waits arrives in two parts, cut anywhere."""
    chunk_bytes_max: int = 256 * 1024
    connect_timeout_s: float = 10.0
    cut_connection: float = 0.0
    delay: float = 0.0
    delay_ms_max: float = 2_000.0
    partition_hosts: float = 0.0
    partition_ms_max: float = 20_000.0
    refuse_connect: float = 0.0


class SimNet:
    def __init__(self, loop: SimLoop, random: Random | None = None, options: NetOptions | None = None) -> None:
        self.loop = loop
        self.random = random or loop.random
        self.options = options or NetOptions()
        # The wire's own callbacks belong to no node: they go on when one is killed.
        self.context = contextvars.copy_context()
        self.digest = 0
        """Grows with every delivery, its time, place and size: equal digests are equal runs."""
        self._hosts: dict[str, SimHost] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._transports: dict[int, SimTransport] = {}
        self._partitions: set[tuple[str, str]] = set()

    # What the harness calls

    def host(self, name: str) -> SimHost:
        """The host of that name, made when there is none (or when it crashed)."""
        found = self._hosts.get(name)
        if found is None or not found.is_alive:
            found = self._hosts[name] = SimHost(self, name)
        return found

    def crash(self, name: str, *, silent: bool = False) -> None:
        """The host dies: its listeners vanish, its protocols hear nothing. The other ends are reset after a while; with
        silent (a power cut, a pulled cable) only when they next send."""
        host = self._hosts.get(name)
        if host is not None:
            host.is_alive = False
        for key in [key for key in self._listeners if key[0] == name]:
            self._listeners.pop(key).is_open = False
        for transport in self._of_host(name):
            transport.die()
            if not silent:
                transport.peer.reset_later()

    def partition(self, a: str, b: str, *, both_ways: bool = True) -> None:
        """Hold back what travels from a to b (and from b to a): connections stay, as TCP would go on trying."""
        self._partitions.add((a, b))
        if both_ways:
            self._partitions.add((b, a))

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """End the partition of two hosts, or every one that touches a, or all."""
        healed = {pair for pair in self._partitions if (a is None or a in pair) and (b is None or b in pair)}
        self._partitions -= healed
        for _, transport in sorted(self._transports.items()):
            transport.hear_heal()

    def is_partitioned(self, source: str, target: str) -> bool:
        return (source, target) in self._partitions

    def connection_count(self) -> int:
        return sum(1 for transport in self._transports.values() if not transport.is_closing()) // 2

    # What transports ask

    def call_later(self, delay_s: float, function: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_s, function, *args, context=self.context)

    def delivery_delay_s(self, source: str, target: str) -> float:
        options = self.options
        if self._happens(options.delay):
            return self.random.uniform(options.latency_ms_max, options.delay_ms_max) / 1000
        return self.random.uniform(options.latency_ms_min, options.latency_ms_max) / 1000

    def chunk_size(self, waiting: int) -> int:
        size = min(waiting, self.options.chunk_bytes_max)
        if size > 1 and self._happens(self.options.split):
            # Headers and lengths are where parsers break: cut there often.
            return self.random.randint(1, min(size - 1, 16) if self._happens(0.5) else size - 1)
        return size

    def size_hint(self) -> int:
        """asyncio asks get_buffer for -1 bytes, uvloop for 64 KiB: a protocol must live with both."""
        return self.random.choice((-1, 65536))

    def holds_back(self, sender: SimTransport, receiver: SimTransport) -> bool:
        """Whether this delivery must not happen: a partition, or the connection is cut at this very moment."""
        source, target = sender.host, receiver.host
        if source != target:
            if self._happens(self.options.partition_hosts):
                self._partition_for_a_while(source, target)
            if self.is_partitioned(source, target):
                return True
        if self._happens(self.options.cut_connection):
            self.cut(sender)
            return True
        return False

    def cut(self, transport: SimTransport) -> None:
        """Break one connection: each end hears of it in its own time, and what was under way is lost."""
        peer = transport.peer
        transport.reset(ConnectionResetError("the connection was cut"))
        peer.reset_later()

    def count_delivery(self, sender: SimTransport, size: int) -> None:
        event = f"{self.loop.time():.9f} {sender.host} {sender.peer.host} {sender.number} {size}"
        self.digest = crc32(event.encode(), self.digest)

    def forget(self, transport: SimTransport) -> None:
        self._transports.pop(transport.number, None)

    # Connecting

    def listen(
        self, host: SimHost, address: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> SimListener:
        if address not in _WILDCARDS + _LOOPBACK and address != host.name:
            raise ListenError(f"cannot listen on {address}:{port}: {host.name} has no such address")
        if port == 0:
            port = next(p for p in range(_FIRST_FREE_PORT, 65536) if (host.name, p) not in self._listeners)
        if (host.name, port) in self._listeners:
            raise ListenError(f"cannot listen on {address}:{port}: another program listens there")
        listener = SimListener(self, host.name, address, port, factory)
        self._listeners[host.name, port] = listener
        return listener

    def unlisten(self, listener: SimListener) -> None:
        if self._listeners.get((listener.host_name, listener.port)) is listener:
            del self._listeners[listener.host_name, listener.port]

    async def connect(
        self, source: SimHost, address: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> SimTransport:
        target = source.name if address in _LOOPBACK + _WILDCARDS else address
        await asyncio.sleep(self.delivery_delay_s(source.name, target))
        await self._wait_reachable(source.name, target, port)
        listener = self._listeners.get((target, port))
        if listener is None or self._happens(self.options.refuse_connect):
            raise ConnectionRefusedError(f"nobody listens on {address}:{port}")
        client = self._join(source, listener, address, factory)
        try:
            await asyncio.sleep(self.delivery_delay_s(target, source.name))
        except asyncio.CancelledError:
            client.abort()
            raise
        if not source.is_alive:
            raise ConnectionAbortedError(f"{source.name} crashed")
        if client.is_closing():
            raise ConnectionResetError(f"{address}:{port} went away while connecting")
        client.open()
        return client

    def _join(
        self, source: SimHost, listener: SimListener, address: str, factory: Callable[[], asyncio.BaseProtocol]
    ) -> SimTransport:
        here = (address if address in _LOOPBACK else source.name, source.next_port())
        there = (address, listener.port)
        client = SimTransport(
            self, factory(), host=source.name, sockname=here, peername=there, context=contextvars.copy_context()
        )
        server = SimTransport(
            self,
            listener.context.run(listener.factory),
            host=listener.host_name,
            sockname=there,
            peername=here,
            context=listener.context.copy(),
        )
        SimTransport.join(client, server)
        self._transports[client.number] = client
        self._transports[server.number] = server
        self.loop.call_soon(server.open, context=self.context)
        return client

    async def _wait_reachable(self, source: str, target: str, port: int) -> None:
        deadline_s = self.loop.time() + self.options.connect_timeout_s
        while self.is_partitioned(source, target) or self.is_partitioned(target, source):
            if self.loop.time() >= deadline_s:
                raise TimeoutError(f"{target}:{port} does not answer")
            await asyncio.sleep(min(1.0, self.options.connect_timeout_s))

    # Chance

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _partition_for_a_while(self, a: str, b: str) -> None:
        self.partition(a, b)
        self.call_later(self.random.uniform(0, self.options.partition_ms_max) / 1000, self.heal, a, b)

    def _of_host(self, name: str) -> list[SimTransport]:
        return [transport for _, transport in sorted(self._transports.items()) if transport.host == name]


class SimListener:
    def __init__(
        self, net: SimNet, host_name: str, address: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.host_name = host_name
        self.factory = factory
        self.context = contextvars.copy_context()
        self.is_open = True
        self._net = net
        self._address = address
        self._port = port

    @property
    def host(self) -> str:
        return self._address

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self.is_open = False
        self._net.unlisten(self)


class SimHost:
    """One machine's view of the network: a Net. `127.0.0.1` is the machine itself, any other name is a host."""

    def __init__(self, net: SimNet, name: str) -> None:
        self.name = name
        self.is_alive = True
        self._net = net
        self._port = 50_000

    def next_port(self) -> int:
        self._port += 1
        return self._port

    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        options: SocketOptions = SocketOptions(),  # noqa: B008 - it never changes
    ) -> SimListener:
        self._check_alive()
        return self._net.listen(self, host, port, factory)

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: SSLContext | None = None
    ) -> asyncio.Transport:
        self._check_alive()
        assert tls is None, "the simulated network has no TLS"
        return await self._net.connect(self, host, port, factory)

    def file_sender(self, transport: asyncio.Transport, sent: Callable[[], None]) -> None:
        """The simulated disk lends nothing."""

    def _check_alive(self) -> None:
        if not self.is_alive:
            raise ConnectionAbortedError(f"{self.name} crashed")
