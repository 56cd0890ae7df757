"""One client's connection: frames out of the byte stream, answers back in the order of their requests.

Requests are handled where they lie in the read buffer, so a request that waits must own what it keeps. Effects happen
in arrival order; only waiting overlaps. What a peer may pile up is bounded: past the limits the connection is not
read. It knows nothing of Kafka's APIs: a frame goes to `handle_frame`, which gives buffers, a slot that waits, or
nothing. `again` is a note of the dispatch's: how to answer a request that is like the one before."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast

from tidelog.broker.buffers import Buffers
from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer, FileSender, Part

if TYPE_CHECKING:
    from tidelog.broker.listener import BrokerListener

_SIZE: Final = Struct(">i")
_unpack_size: Final = _SIZE.unpack_from

PIPELINED_REQUESTS_MAX: Final = 256
SCARCE_REQUESTS_MAX: Final = 8
ANSWER_BYTES_MAX: Final = 1 << 20
"""What may be answered and not yet handed to the transport: a fetch of a hundred bytes has an answer of megabytes."""
_SMALL_ANSWER_BYTES: Final = 4 * 1024
"""Less than this may wait until the loop's turn is over; more would lie about for a thousand connections at once."""
_TURN_BYTES: Final = 8 << 20
_TURN_BYTES_BESIDE: Final = 128 * 1024
"""Of one large answer while others wait for news: a megabyte keeps the loop for some hundred microseconds."""
_FIRST_PRIVATE_BYTES: Final = 64 * 1024
_SCARCE_PRIVATE_BYTES: Final = 4 * 1024


Answer: TypeAlias = "bytes | Sequence[Part]"
_BYTES: Final = (bytes, bytearray, memoryview)


class Again(Protocol):
    """Answers a request that differs from an earlier one of its connection only where many do."""

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | Literal[False] | None:
        """False when the frame is another one: nothing has happened then, and it goes the way of all requests."""
        ...


class Slot:
    """The place of one answer in the order of a connection. Filled once, perhaps after its connection has died."""

    __slots__ = ("_connection", "answer", "make", "on_drop")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self.answer: Sequence[Part] | None = None
        self.make: Callable[[], Sequence[Part] | None] | None = None
        self.on_drop: Callable[[], None] | None = None

    def fill(self, answer: Sequence[Part]) -> None:
        connection = self._connection
        if connection is not None and self.answer is None:
            self.answer = answer
            self.on_drop = None
            connection.drain(answer)

    def fill_in_turn(self, make: Callable[[], Sequence[Part] | None]) -> None:
        """The answer is made when all before it have left and the peer takes more: what nobody reads is not made. A
        maker that gives None fills the slot later."""
        if self._connection is not None:
            self.make = make
            self._connection.deferred += 1
            self._connection.drain(())

    def drop(self) -> None:
        """The connection is gone; whoever parked the request forgets it."""
        self._connection = None
        self.make = None
        if (on_drop := self.on_drop) is not None:
            self.on_drop = None
            on_drop()


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_answers",
        "_buffers",
        "_filled",
        "_handle",
        "_is_closing",
        "_monotonic_s",
        "_outbox",
        "_parked",
        "_private",
        "_reading_paused",
        "_ready",
        "_requests",
        "_sender",
        "_slots",
        "_stalled",
        "_turn",
        "_unsent_bytes",
        "_writing_paused",
        "again",
        "again_misses",
        "deferred",
        "is_admitted",
        "last_active_s",
        "listener",
        "number",
        "peer_host",
        "received_s",
        "software",
        "transport",
    )

    def __init__(self, listener: BrokerListener, number: int) -> None:
        self.listener = listener
        self.number = number
        self.transport: asyncio.Transport | None = None
        self.peer_host = ""
        self.software = ("", "")  # name and version, once the client has told them (KIP-511)
        self.is_admitted = False
        """The listener serves it: it is not one that waits for its turn."""
        self._monotonic_s = listener.clock.monotonic_s
        self.received_s = self._monotonic_s()
        """When the bytes came that are looked at."""
        self.last_active_s = self.received_s
        """When it last finished a request."""
        self.again: Again | None = None
        self.again_misses = 0
        self._handle = listener.handle_frame
        self._requests = listener.ledger.request_bytes
        self._answers = listener.ledger.answer_bytes
        self._parked = listener.ledger.parked_bytes
        self._turn = listener.ledger.turn
        self._outbox = listener.ledger.outbox
        self._stalled = (0, 0.0)
        self._buffers: Buffers = listener.buffers
        self._private: memoryview | None = None
        self._filled = 0
        self._ready: list[Part] = []  # answered, next in order, and not yet handed to the transport
        self._slots: deque[Slot] = deque()  # behind those: what waits, and what is answered behind it
        self._unsent_bytes = 0
        self.deferred = 0
        """Answers that are made in their turn: until then nothing more is read, as Kafka reads nothing while it works
        on a request."""
        self._is_closing = False
        self._reading_paused = False
        self._writing_paused = False
        """The peer must take something first. While the sender has something to send, too."""
        self._sender: FileSender | None = None

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if peer else ""
        self.listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._is_closing = True
        self.again = None
        self._ready.clear()
        if self._sender is not None:
            self._sender.close()
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.drop()
        if (private := self._private) is not None:
            self._private = None
            self._buffers.give(private)
        self._requests.forget(self)
        self._answers.forget(self)
        self.listener.closed(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._stalled = (0, 0.0)
        self._pause_reading()
        self._count_answers()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._flush()
        self._count_answers()
        self._maybe_resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        private = self._private
        if private is None:
            return self._buffers.shared
        if self._filled == len(private):
            private = self._grow(private)
        return private[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received_s = self._monotonic_s()
        try:
            if self._private is None:
                shared = self._buffers.shared
                consumed = self._consume(shared, nbytes)
                if consumed < nbytes and self.transport is not None:
                    self._keep(shared[consumed:nbytes])
            else:
                self._filled += nbytes
                self._consume_private()
        except ProtocolError as error:
            self._fail(error)

    # frames

    def _consume(self, buffer: memoryview, end: int) -> int:
        """Handle the whole frames in buffer[:end]; how many bytes they were."""
        position = 0
        limit = self.listener.frame_bytes_max
        handle = self._handle
        while end - position >= 4:
            (size,) = _unpack_size(buffer, position)
            if size < 0 or size > limit:
                raise ProtocolError(f"a frame of {size} bytes; the limit (socket.request.max.bytes) is {limit}")
            start = position + 4
            stop = start + size
            if stop > end or (self._reading_paused and (self._writing_paused or self._is_full or not self.is_admitted)):
                break
            position = stop
            answer = handle(self, buffer[start:stop])
            if isinstance(answer, bytes) and not self._slots:  # by far the most
                self._unsent_bytes += len(answer)
                self._ready.append(answer)
            elif answer is not None:
                self._place(answer)
            if self._is_closing:
                return end  # what follows is not looked at
            if self._unsent_bytes >= ANSWER_BYTES_MAX or self._slots or len(self._ready) >= PIPELINED_REQUESTS_MAX:
                self._relieve()
        if position:
            self.last_active_s = self.received_s
        if self._ready:
            if self._unsent_bytes < _SMALL_ANSWER_BYTES:
                self._outbox.add(self)
                return position
            self._flush()
        if self._unsent_bytes:
            self._count_answers()
        return position

    def _place(self, answer: Answer) -> None:
        """An answer that is there takes its place: a slot only behind one that waits."""
        if isinstance(answer, bytes):
            answer = (answer,)
        size = sum(map(len, answer))
        self._unsent_bytes += size
        self._turn.spend(size)
        if not self._slots:
            self._ready += answer
            return
        slot = Slot(self)
        slot.answer = answer
        self._slots.append(slot)

    def _relieve(self) -> None:
        """Past the limits: send what may be sent, and if that does not help read no more."""
        if self._is_full:
            self._flush()
            if self._is_full:
                self._pause_reading()

    @property
    def _is_full(self) -> bool:
        waiting = len(self._slots) + len(self._ready)
        return waiting >= self._pipelined_max or self._unsent_bytes >= ANSWER_BYTES_MAX or self.deferred > 0

    @property
    def _pipelined_max(self) -> int:
        """Fewer when all connections together keep many waiting."""
        return SCARCE_REQUESTS_MAX if 2 * self._parked.used > self._parked.limit else PIPELINED_REQUESTS_MAX

    def _consume_private(self) -> None:
        private = self._private
        assert private is not None
        filled = self._filled
        if filled >= 4:
            (size,) = _SIZE.unpack_from(private, 0)
            if 0 <= size <= self.listener.frame_bytes_max and filled < size + 4:
                if filled == len(private) and self._requests.must_wait:
                    self._pause_reading()
                    self._requests.wait(self, self._maybe_resume)
                return
        # Owned by this call while frames are handled: closing in the middle must not hand it out twice.
        self._private = None
        try:
            consumed = self._consume(private, filled)
            if self.transport is not None and consumed < filled:
                if consumed == 0:
                    self._private = private
                    return
                self._keep(private[consumed:filled])
        finally:
            if self._private is not private:
                self._buffers.give(private)
                if self._private is None:
                    self._requests.hold(self, 0)

    def _keep(self, rest: memoryview) -> None:
        """An unfinished frame moves to a buffer of its own, which grows as bytes arrive, not as the peer announces."""
        private = self._buffers.take(self._wanted(rest, len(rest)))
        private[: len(rest)] = rest
        self._private = private
        self._filled = len(rest)
        self._requests.hold(self, len(private))

    def _grow(self, private: memoryview) -> memoryview:
        larger = self._buffers.take(self._wanted(private, self._filled))
        larger[: self._filled] = private[: self._filled]
        self._buffers.give(private)
        self._private = larger
        self._requests.hold(self, len(larger))
        return larger

    def _wanted(self, start: memoryview, filled: int) -> int:
        if filled < 4:
            return _SCARCE_PRIVATE_BYTES
        (size,) = _SIZE.unpack_from(start, 0)
        is_scarce = 2 * self._requests.used > self._requests.limit
        first = _SCARCE_PRIVATE_BYTES if is_scarce else _FIRST_PRIVATE_BYTES
        return max(min(int(size) + 4, max(4 * filled, first)), filled + 1)

    # answers

    def park(self) -> Slot:
        """The place of an answer that is not there yet."""
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def drain(self, answer: Sequence[Part]) -> None:
        """An answer has arrived: send all that are next in order, then go on with what was held back."""
        self._unsent_bytes += sum(map(len, answer))
        self._flush()
        self._count_answers()
        self._maybe_resume()

    def send_ready(self) -> None:
        ready, transport = self._ready, self.transport
        if len(ready) == 1 and isinstance(answer := ready[0], bytes) and not (self._slots or self._writing_paused):
            # _flush in short: by far the most have one answer, and none that waits.
            if transport is not None and not transport.is_closing():
                self._ready = []
                self._unsent_bytes = 0
                transport.write(answer)
            return
        self._flush()
        if self._unsent_bytes:
            self._count_answers()

    def _flush(self) -> None:
        """Hand the transport what is next in order, unless the peer has yet to take what it was given before."""
        slots = self._slots
        while not self._writing_paused and (transport := self.transport) is not None and not transport.is_closing():
            while slots and (answer := slots[0].answer) is not None:
                slots.popleft()
                self._ready += answer
            ready = self._ready
            if ready:
                self._ready = []
                self._unsent_bytes = self._unsent_bytes - sum(map(len, ready)) if slots else 0
                self._write(transport, ready)
                if not slots:
                    return
            elif not slots or not self._make_next():
                return

    def _write(self, transport: asyncio.Transport, parts: list[Part]) -> None:
        if len(parts) == 1 and isinstance(only := parts[0], _BYTES):
            transport.write(only)
            return
        read: list[Buffer] = [part for part in parts if isinstance(part, _BYTES)]
        if len(read) < len(parts):
            # Some are lent. They go another way, unless somebody has to wait for the transport.
            if self._sender is None:
                self._sender = self.listener.file_sender(transport, self._sent)
            if self._sender is not None and not transport.get_write_buffer_size():
                if not self._sender.send(parts, _TURN_BYTES_BESIDE if self._parked.used else _TURN_BYTES):
                    self._writing_paused = True
                    self._stalled = (0, 0.0)
                return
            read = [part if isinstance(part, _BYTES) else part.read() for part in parts]
        transport.writelines(read)

    def _sent(self) -> None:
        """The sender has nothing left."""
        if self._is_closing and self.transport is not None:
            self.transport.close()
        else:
            self.resume_writing()

    @property
    def _bytes_in_transport(self) -> int:
        in_sender = 0 if self._sender is None else self._sender.unsent_bytes
        return in_sender + (0 if self.transport is None else self.transport.get_write_buffer_size())

    def _make_next(self) -> bool:
        """The answer at the head, if its maker waits for this moment and there is room for it."""
        slot = self._slots[0]
        make = slot.make
        if make is None:
            return False
        if self._answers.must_wait:
            self._answers.wait(self, self._after_room)
            return False
        if self._turn.is_spent:
            self._turn.wait(self, self._after_room)
            return False
        slot.make = None
        self.deferred -= 1
        answer = make()
        if answer is None:
            return False
        slot.answer = answer
        slot.on_drop = None
        size = sum(map(len, answer))
        self._unsent_bytes += size
        self._turn.spend(size)
        return True

    def _after_room(self) -> None:
        self._flush()
        self._count_answers()
        self._maybe_resume()

    def _count_answers(self) -> None:
        """What waits in its slot or in the transport stands in the ledger, once it is more than passes through."""
        transport = self.transport
        if transport is not None:
            in_transport = self._bytes_in_transport if self._writing_paused else 0
            self._answers.hold(self, in_transport + self._unsent_bytes)

    @property
    def answers_wait(self) -> bool:
        """An answer that is made now would lie about: others are before it, or the peer or the node has too many."""
        is_behind = bool(self._slots) and self._slots[0].answer is None
        return is_behind or self._writing_paused or self._answers.must_wait or self._turn.is_spent

    def _pause_reading(self) -> None:
        if not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def hold_reading(self) -> None:
        """The node is not ready, or has no room: the peer's first bytes stay in the socket."""
        self._pause_reading()
        # uvloop begins to read when connection_made has returned, whatever was said in it.
        self.listener.ledger.soon(self._hold_on)

    def _hold_on(self) -> None:
        transport = self.transport
        if not self.is_admitted and transport is not None and transport.is_reading():
            transport.pause_reading()

    def start_reading(self) -> None:
        self._maybe_resume()

    def _maybe_resume(self) -> None:
        if not self._reading_paused or self._writing_paused or self.transport is None or self._is_closing:
            return
        if len(self._slots) >= self._pipelined_max // 2 or self._is_full:
            return
        self._reading_paused = False
        self.transport.resume_reading()
        self.received_s = self._monotonic_s()
        if self._private is not None and self._filled >= 4:
            try:
                self._consume_private()
            except ProtocolError as error:
                self._fail(error)

    # closing

    def _fail(self, error: ProtocolError) -> None:
        self.listener.peer_log.warning("closing the connection from %s: %s", self.peer_host, error)
        self.abort()

    def close(self) -> None:
        """After what is answered has left."""
        self._flush()
        self._is_closing = True
        if self.transport is not None and not (self._sender is not None and self._sender.unsent_bytes):
            self.transport.close()

    def abort(self) -> None:
        self._is_closing = True
        if self.transport is not None:
            self.transport.abort()

    def cut_off(self, what: str) -> None:
        """The ledger's limit was reached, and nobody has held for longer."""
        self.listener.peer_log.warning("closing the connection from %s: no more room for its %s", self.peer_host, what)
        self.abort()
        if (private := self._private) is not None:
            # At once: others may take as much before the loop comes to tell that this connection is lost.
            self._private = None
            self._buffers.give(private)

    @property
    def is_idle(self) -> bool:
        return not self._slots and not self._ready and not (self._writing_paused and self._sender is not None)

    def idle_since_s(self, now_s: float) -> float:
        """Since when neither end has got anywhere: no request finished, nothing of the answers taken."""
        if not self._writing_paused or self.transport is None:
            return self.last_active_s if self.is_idle else now_s
        left = self._bytes_in_transport
        if left != self._stalled[0]:
            self._stalled = left, now_s
        return self._stalled[1]
