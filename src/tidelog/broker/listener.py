"""A listener: an address, its security protocol, and the connections that came in through it.

Lets them in as the connection limits say: turned away, made to wait (connected, but not read), or served. Ends those
that say nothing, never finish what they say, or never take their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.broker.buffers import Buffers
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.connection_limits import ConnectionLimits
from tidelog.broker.ledger import Ledger
from tidelog.broker.metrics import Metrics
from tidelog.broker.peer_log import PeerLog
from tidelog.kernel.ports import Clock, FileSender, Listener, Net, SocketOptions


class BrokerListener:
    def __init__(
        self,
        *,
        name: str,
        host: str,
        port: int,
        advertised: tuple[str, int] | None,
        frame_bytes_max: int,
        idle_s_max: float,
        clock: Clock,
        buffers: Buffers,
        metrics: Metrics,
        ledger: Ledger,
        limits: ConnectionLimits,
        peer_log: PeerLog,
        handle_frame: Callable[[Connection, memoryview], Answer | None],
        options: SocketOptions | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.advertised = advertised
        """None means auto: a client is told the address that it dialled."""
        self.frame_bytes_max = frame_bytes_max
        self.clock = clock
        self.buffers = buffers
        self.ledger = ledger
        self.peer_log = peer_log
        self.handle_frame = handle_frame
        self.file_sender: Callable[[asyncio.Transport, Callable[[], None]], FileSender | None] = lambda *_: None
        self._idle_s_max = idle_s_max
        self._metrics = metrics
        self._limits = limits
        self._options = options or SocketOptions()
        self._listening: Listener | None = None
        self._connections: dict[int, Connection] = {}
        self._waiting: dict[int, Connection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_serving = False
        self._is_closed = False
        limits.register(name, self.admit_waiting)

    async def bind(self, net: Net) -> None:
        """Take the address. What connects before start_serving waits: it is not read yet."""
        self.file_sender = net.file_sender
        self._listening = await net.listen(self.host, self.port, self._accept, self._options)
        self.port = self._listening.port

    def start_serving(self) -> None:
        self._is_serving = True
        self.admit_waiting()

    # coming and going

    def _accept(self) -> Connection:
        return Connection(self, self._limits.next_number())

    def opened(self, connection: Connection) -> None:
        self._connections[connection.number] = connection
        self._metrics.connections_accepted += 1
        self._metrics.connections_open += 1
        refusal = self._limits.opened(connection.peer_host)
        if self._is_closed:
            # Accepted by the loop before the listener closed, and made only now.
            connection.abort()
        elif refusal is not None or len(self._waiting) >= self._options.backlog:
            reason = refusal or f"{len(self._waiting)} others wait already (max.connections)"
            self._metrics.connections_refused += 1
            self.peer_log.warning("turning away a connection from %s: %s", connection.peer_host, reason)
            connection.abort()
        else:
            self._waiting[connection.number] = connection
            self.admit_waiting()
            if connection.number in self._waiting:
                connection.hold_reading()

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._metrics.connections_open -= 1
        self._limits.closed(connection.peer_host)
        self._waiting.pop(connection.number, None)
        if connection.is_admitted:
            connection.is_admitted = False
            self._limits.left(self.name)

    def admit_waiting(self) -> None:
        """Serve those that wait, the first first, as far as the limits allow."""
        while self._waiting and self._is_serving and not self._is_closed and self._limits.has_slot(self.name):
            delay_s = self._limits.wait_s(self.name)
            if delay_s > 0:
                self._admit_later(delay_s)
                return
            connection = self._waiting.pop(next(iter(self._waiting)))
            connection.is_admitted = True
            self._limits.admitted(self.name)
            connection.start_reading()

    def _admit_later(self, delay_s: float) -> None:
        if self._timer is None:
            self._metrics.connections_throttled += 1
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.admit_waiting()

    def address_for(self, connection: Connection) -> tuple[str, int]:
        """What a client on this connection should dial to reach this broker (advertised.listeners)."""
        if self.advertised is not None:
            return self.advertised
        transport = connection.transport
        name = transport.get_extra_info("sockname") if transport is not None else None
        if not name:
            return self.host or "127.0.0.1", self.port
        # A dual-stack socket names an IPv4 address in IPv6 clothes.
        return str(name[0]).removeprefix("::ffff:"), int(name[1])

    # ending

    def close_idle(self) -> int:
        """Close the connections that have finished no request, or taken nothing of their answers, for too long
        (connections.max.idle.ms)."""
        if self._idle_s_max <= 0:
            return 0
        now_s = self.clock.monotonic_s()
        limit = now_s - self._idle_s_max
        idle = [c for c in self._connections.values() if c.is_admitted and c.idle_since_s(now_s) < limit]
        for connection in idle:
            # Not by close(): what a peer has not read for so long would keep the connection for ever.
            connection.abort()
        return len(idle)

    def shrink(self) -> bool:
        """Give up the connection that was idle for longest, when max.connections was lowered or the broker's own
        listener needed the room."""
        if not self._limits.must_shrink(self.name):
            return False
        admitted = [connection for connection in self._connections.values() if connection.is_admitted]
        oldest = min(admitted, key=lambda connection: connection.last_active_s, default=None)
        if oldest is None:
            return False
        oldest.is_admitted = False
        self._limits.left(self.name)
        self._metrics.connections_refused += 1
        self.peer_log.warning("closing the connection from %s: too many (max.connections)", oldest.peer_host)
        oldest.abort()
        return True

    def stop_accepting(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def close(self) -> None:
        self._is_closed = True
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._connections.values()):
            connection.abort()
