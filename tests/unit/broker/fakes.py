"""A transport that keeps what is written, buffers that notice misuse, and a listener around them."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidelog.broker.buffers import Buffers
from tidelog.broker.connection import Connection
from tidelog.broker.connection_limits import ConnectionLimits
from tidelog.broker.ledger import Ledger
from tidelog.broker.listener import BrokerListener
from tidelog.broker.metrics import Metrics
from tidelog.broker.peer_log import PeerLog
from tidelog.kernel.ports import Buffer, SocketOptions
from tidelog.metadata.config import BrokerValues
from tidelog.metadata.live_config import LiveConfig

Handle = Callable[[Connection, memoryview], Sequence[Buffer] | None]


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


class FakeTransport(asyncio.Transport):
    """`high_water` bytes unread by the peer pause the writer, as a real transport does: within the call of write."""

    def __init__(self, protocol: Connection, *, high_water: int = 1 << 40, host: str = "127.0.0.1") -> None:
        super().__init__({"peername": (host, 5), "sockname": ("127.0.0.1", 9092)})
        self.protocol = protocol
        self.high_water = high_water
        self.written: list[bytes] = []
        self.unread = 0
        self.reading = True
        self.closed = ""
        self.is_full = False

    def write(self, data: Any) -> None:
        assert not self.closed, "written after it was closed: that would be lost"
        self.written.append(bytes(data))
        self.unread += len(data)
        if self.unread > self.high_water and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()

    def writelines(self, parts: Iterable[Any]) -> None:
        self.write(b"".join(parts))

    def peer_reads(self) -> None:
        self.unread = 0
        if self.is_full:
            self.is_full = False
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = self.closed or "close"

    def abort(self) -> None:
        self.closed = "abort"

    def is_closing(self) -> bool:
        return bool(self.closed)


class WatchedBuffers(Buffers):
    """Fails when a buffer is given back that was not taken, and overwrites whatever is given back."""

    __slots__ = ("taken", "taken_bytes_max")

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[int, memoryview] = {}
        self.taken_bytes_max = 0

    def take(self, size: int) -> memoryview:
        buffer = super().take(size)
        assert len(buffer) >= size and id(buffer) not in self.taken
        self.taken[id(buffer)] = buffer
        self.taken_bytes_max = max(self.taken_bytes_max, sum(map(len, self.taken.values())))
        return buffer

    def give(self, buffer: memoryview) -> None:
        assert self.taken.pop(id(buffer), None) is buffer, "given back twice, or never taken"
        buffer[:] = b"\xee" * len(buffer)
        super().give(buffer)


class World:
    """What the connections of one node share."""

    def __init__(self, config: Mapping[str, str] | None = None, **limits: int) -> None:
        self.clock = FakeClock()
        self.buffers = WatchedBuffers()
        self.metrics = Metrics(self.clock.monotonic_s)
        self.config = LiveConfig(BrokerValues(dict(config or {})), 1)
        self.ledger = Ledger(self.clock.monotonic_s, lambda callback: callback(), **limits)
        self.limits = ConnectionLimits(self.config, self.clock.monotonic_s, self.ledger.connections, "PLAINTEXT")
        self.peer_log = PeerLog(logging.getLogger("tidelog.connection"), self.clock.monotonic_s)

    def listener(
        self, handle: Handle, *, name: str = "PLAINTEXT", frame_bytes_max: int = 1 << 20, backlog: int = 1024
    ) -> BrokerListener:
        listener = BrokerListener(
            name=name,
            host="127.0.0.1",
            port=9092,
            advertised=None,
            frame_bytes_max=frame_bytes_max,
            idle_s_max=600,
            clock=self.clock,
            buffers=self.buffers,
            metrics=self.metrics,
            ledger=self.ledger,
            limits=self.limits,
            peer_log=self.peer_log,
            handle_frame=handle,
            options=SocketOptions(backlog=backlog),
        )
        listener.start_serving()
        return listener


class Link:
    """One connection and its peer."""

    def __init__(
        self,
        handle: Handle,
        *,
        frame_bytes_max: int = 1 << 20,
        high_water: int = 1 << 40,
        world: World | None = None,
        host: str = "127.0.0.1",
        listener: BrokerListener | None = None,
    ) -> None:
        world = world or World()
        self.clock = world.clock
        self.buffers = world.buffers
        self.metrics = world.metrics
        self.listener = listener or world.listener(handle, frame_bytes_max=frame_bytes_max)
        self.connection = self.listener._accept()
        self.transport = FakeTransport(self.connection, high_water=high_water, host=host)
        self.connection.connection_made(self.transport)
        self._unsent = bytearray()

    def send(self, data: bytes, chunk: int = 1 << 30) -> None:
        """What the peer sends reaches the connection in chunks of at most this size, while it reads at all."""
        self._unsent += data
        self.flow(chunk)

    def flow(self, chunk: int = 1 << 30) -> None:
        while self._unsent and self.transport.reading and not self.transport.closed:
            buffer = self.connection.get_buffer(-1)
            assert len(buffer) > 0
            size = min(len(buffer), chunk, len(self._unsent))
            buffer[:size] = self._unsent[:size]
            del self._unsent[:size]
            self.connection.buffer_updated(size)
            # The next connection reads into the same buffer.
            self.buffers.shared[:] = b"\xdd" * len(self.buffers.shared)

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    @property
    def answers(self) -> bytes:
        return b"".join(self.transport.written)

    def lose(self) -> None:
        self.connection.connection_lost(None)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
