"""A listener: an address, its security protocol, and the connections that came in through it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tidelog.broker.buffers import Buffers
from tidelog.broker.connection import Connection
from tidelog.broker.metrics import Metrics
from tidelog.kernel.ports import Buffer, Clock, Listener, Net

_log = logging.getLogger("tidelog.listener")


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
        handle_frame: Callable[[Connection, memoryview], Sequence[Buffer] | None],
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.advertised = advertised
        """None means auto: a client is told the address that it dialled."""
        self.frame_bytes_max = frame_bytes_max
        self.clock = clock
        self.buffers = buffers
        self.handle_frame = handle_frame
        self._idle_s_max = idle_s_max
        self._metrics = metrics
        self._listening: Listener | None = None
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        self._is_serving = False
        self._is_closed = False

    async def bind(self, net: Net) -> None:
        """Take the address. What connects before start_serving waits: it is not read yet."""
        self._listening = await net.listen(self.host, self.port, self._accept)
        self.port = self._listening.port

    def start_serving(self) -> None:
        self._is_serving = True
        for connection in self._connections.values():
            connection.start_reading()

    def _accept(self) -> Connection:
        self._numbers += 1
        return Connection(self, self._numbers)

    def opened(self, connection: Connection) -> None:
        self._connections[connection.number] = connection
        if self._is_closed:
            # Accepted by the loop before the listener closed, and made only now.
            connection.abort()
        elif not self._is_serving:
            connection.hold_reading()
        self._metrics.connections_accepted += 1
        self._metrics.connections_open += 1

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is not None:
            self._metrics.connections_open -= 1

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

    def close_idle(self) -> int:
        """Close the connections that have said nothing for too long (connections.max.idle.ms)."""
        if self._idle_s_max <= 0:
            return 0
        limit = self.clock.monotonic_s() - self._idle_s_max
        idle = [c for c in self._connections.values() if c.is_idle and c.last_active_s < limit]
        for connection in idle:
            # Not by close(): what a peer has not read for so long would keep the connection for ever.
            connection.abort()
        return len(idle)

    def stop_accepting(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def close(self) -> None:
        self._is_closed = True
        self.stop_accepting()
        for connection in list(self._connections.values()):
            connection.abort()
