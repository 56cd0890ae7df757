"""A transport that keeps what is written, buffers that notice misuse, and a listener around them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidelog.broker.buffers import Buffers
from tidelog.broker.connection import Connection
from tidelog.broker.listener import BrokerListener
from tidelog.broker.metrics import Metrics
from tidelog.kernel.ports import Buffer

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

    def __init__(self, protocol: Connection, *, high_water: int = 1 << 40) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 9092)})
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


class Link:
    """One connection and its peer."""

    def __init__(self, handle: Handle, *, frame_bytes_max: int = 1 << 20, high_water: int = 1 << 40) -> None:
        self.clock = FakeClock()
        self.buffers = WatchedBuffers()
        self.metrics = Metrics(self.clock.monotonic_s)
        self.listener = BrokerListener(
            name="PLAINTEXT",
            host="127.0.0.1",
            port=9092,
            advertised=None,
            frame_bytes_max=frame_bytes_max,
            idle_s_max=600,
            clock=self.clock,
            buffers=self.buffers,
            metrics=self.metrics,
            handle_frame=handle,
        )
        self.listener.start_serving()
        self.connection = self.listener._accept()
        self.transport = FakeTransport(self.connection, high_water=high_water)
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
