"""One end of a simulated connection: asyncio's Transport over virtual time.

Bytes wait in the writer's queue until they arrive, and are copied only then, as uvloop keeps the object it was given: a
buffer that is reused too early arrives spoilt. The two ends drive each other; `sim.net` decides on delays and faults.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.sim.net import SimNet

_HIGH_WATER_BYTES: Final = 64 * 1024
_Address = tuple[str, int]


class SimTransport(asyncio.Transport):
    """`context` is the one that the protocol's callbacks run in, so that they belong to the right simulated process."""

    def __init__(
        self,
        net: SimNet,
        protocol: asyncio.BaseProtocol,
        *,
        host: str,
        sockname: _Address,
        peername: _Address,
        context: contextvars.Context,
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.host = host
        self.number = net.loop.next_number()
        self._net = net
        self._protocol = protocol
        self._context = context
        self._queue: deque[memoryview] = deque()
        self._size = 0
        self._high = _HIGH_WATER_BYTES
        self._low = _HIGH_WATER_BYTES // 4
        self._delivery: asyncio.TimerHandle | None = None
        self._is_open = False  # connection_made was called
        self._is_closing = False
        self._is_lost = False  # connection_lost was called, or never will be: the host is dead
        self._reading_is_paused = False
        self._writing_is_paused = False
        self._eof_is_queued = False
        self._eof_is_sent = False
        self._eof_is_received = False
        self._reset_is_held_back = False
        self._peer: SimTransport | None = None

    def __repr__(self) -> str:
        return f"<SimTransport {self._extra['sockname']} -> {self._extra['peername']}>"  # type: ignore[attr-defined]

    @property
    def peer(self) -> SimTransport:
        assert self._peer is not None
        return self._peer

    @staticmethod
    def join(a: SimTransport, b: SimTransport) -> None:
        a._peer, b._peer = b, a

    # What protocols call: reading

    def is_reading(self) -> bool:
        return not self._reading_is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._reading_is_paused = True

    def resume_reading(self) -> None:
        self._reading_is_paused = False
        self.peer._arm()

    # What protocols call: writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data: expected bytes-like, got {type(data).__name__}")
        if not len(data) or self._is_closing or self._is_lost:
            return
        if self._eof_is_queued:
            raise RuntimeError("Cannot call write() after write_eof()")
        view = memoryview(data).cast("B")
        self._queue.append(view)
        self._size += len(view)
        self._arm()
        if self._size > self._high and not self._writing_is_paused:
            self._writing_is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_is_queued and not self._is_closing:
            self._eof_is_queued = True
            self._arm()

    def get_write_buffer_size(self) -> int:
        return self._size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    # What protocols call: the end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """No more reading; what is written still leaves, then both ends are told."""
        if self._is_closing or self._is_lost:
            return
        self._is_closing = True
        self._eof_is_queued = True
        if self._size == 0:
            self._soon(self._lose, None)
        self._arm()

    def abort(self) -> None:
        if not self._is_lost:
            self._fail(None)
            self.peer.reset_later()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    # What the network calls

    def open(self) -> None:
        if self._is_lost or self._is_open:
            return
        self._is_open = True
        self._run(self._protocol.connection_made, self)
        self.peer._arm()

    def reset(self, error: Exception) -> None:
        """The connection broke: what is queued is lost, the protocol hears of it."""
        if not self._is_lost:
            self._fail(error)

    def hear_heal(self) -> None:
        """A partition ended somewhere: go on with what it held back."""
        if self._reset_is_held_back:
            self._reset_is_held_back = False
            self.reset_later()
        self._arm()

    def die(self) -> None:
        """The host crashed: nothing more comes from here, and its protocol hears nothing."""
        self._is_closing = self._is_lost = True
        self._drop_queue()
        self._net.forget(self)

    # Delivery

    def _arm(self) -> None:
        """Have the next bytes, or the end, arrive at the peer after a while."""
        peer = self.peer
        if self._delivery is not None or self._is_lost_for_sending() or not peer._is_open:
            return
        if peer._is_paused():
            return
        if self._size or (self._eof_is_queued and not self._eof_is_sent):
            delay_s = self._net.delivery_delay_s(self.host, peer.host)
            self._delivery = self._net.call_later(delay_s, self._deliver)

    def _is_lost_for_sending(self) -> bool:
        # A closed transport with an empty queue is lost to its protocol, but its end must still arrive.
        return self._is_lost and not (self._eof_is_queued and not self._eof_is_sent and not self._size)

    def _deliver(self) -> None:
        self._delivery = None
        if self._is_lost_for_sending():
            return
        if self._net.holds_back(self, self.peer):  # partitioned, or cut just now
            return
        peer = self.peer
        if peer._is_paused():
            return
        if self._size and peer._is_lost:
            # Nobody is there any more: the other kernel answers with a reset.
            self.reset_later()
            return
        if self._size:
            self._net.count_delivery(self, peer._receive(self))
            self._after_progress()
        elif self._eof_is_queued and not self._eof_is_sent:
            self._eof_is_sent = True
            peer._receive_eof()
            if self._is_lost:
                self._net.forget(self)
        self._arm()

    def _is_paused(self) -> bool:
        return self._reading_is_paused and not self._is_closing

    def _receive(self, sender: SimTransport) -> int:
        """Hand over some of the sender's bytes; how many."""
        protocol = self._protocol
        size = self._net.chunk_size(sender._size)
        if self._is_closing:
            # Closed for reading, but its own last bytes are still on their way: the kernel takes and drops these.
            sender._take(size)
            return size
        try:
            if isinstance(protocol, asyncio.BufferedProtocol):
                return self._receive_into(protocol, sender, size)
            assert isinstance(protocol, asyncio.Protocol)
            data = sender._take(size)
            self._run(protocol.data_received, data)
            return size
        except Exception as error:
            self._report(error)
            self._fail(error)
            self.peer.reset_later()
            return 0

    def _receive_into(self, protocol: asyncio.BufferedProtocol, sender: SimTransport, size: int) -> int:
        buffer = memoryview(self._run(protocol.get_buffer, self._net.size_hint())).cast("B")
        if not len(buffer):
            raise RuntimeError("get_buffer() returned an empty buffer")
        size = min(size, len(buffer))
        buffer[:size] = sender._take(size)
        self._run(protocol.buffer_updated, size)
        return size

    def _take(self, size: int) -> bytes:
        """Copy bytes out of the queue: only here, so that the writer's later changes show."""
        parts: list[bytes] = []
        left = size
        while left:
            view = self._queue[0]
            if len(view) <= left:
                parts.append(bytes(view))
                left -= len(view)
                self._queue.popleft().release()
            else:
                parts.append(bytes(view[:left]))
                self._queue[0] = view[left:]
                left = 0
        self._size -= size
        return b"".join(parts)

    def _receive_eof(self) -> None:
        if self._is_closing or self._is_lost or self._eof_is_received:
            return
        self._eof_is_received = True
        keep_open = False
        if isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol):
            keep_open = bool(self._run(self._protocol.eof_received))
        if not keep_open:
            self.close()

    def _after_progress(self) -> None:
        if self._writing_is_paused and self._size <= self._low and not self._is_lost:
            self._writing_is_paused = False
            self._run(self._protocol.resume_writing)
        if self._size == 0 and self._is_closing:
            self._lose(None)

    # Loss

    def reset_later(self) -> None:
        if not self._is_lost:
            self._net.call_later(self._net.delivery_delay_s(self.peer.host, self.host), self._reset_arrives)

    def _reset_arrives(self) -> None:
        if self._net.is_partitioned(self.peer.host, self.host):
            self._reset_is_held_back = True
        else:
            self.reset(ConnectionResetError("the other end closed or crashed"))

    def _fail(self, error: Exception | None) -> None:
        self._is_closing = True
        self._eof_is_sent = True  # the peer hears of a reset, not of an end
        self._drop_queue()
        self._soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._drop_queue()
        if self._eof_is_sent or self.peer._is_lost:
            self._net.forget(self)
        if self._is_open:
            self._run(self._protocol.connection_lost, error)

    def _drop_queue(self) -> None:
        for view in self._queue:
            view.release()
        self._queue.clear()
        self._size = 0

    # Helpers

    def _soon(self, function: Callable[..., object], *args: Any) -> None:
        self._net.loop.call_soon(function, *args, context=self._net.context)

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._context.run(function, *args)

    def _report(self, error: Exception) -> None:
        message = "Fatal error: a protocol's callback for received data failed."
        self._net.loop.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
