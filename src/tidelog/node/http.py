"""The node's small HTTP listener: /ready and /metrics. GET only, no keep-alive, no framework.

Bounded as the other listeners are: so many connections, so many bytes of a request, so long for the whole exchange.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

from tidelog.kernel.errors import ListenError
from tidelog.kernel.ports import Listener
from tidelog.node.listeners import address
from tidelog.node.metrics import slices

if TYPE_CHECKING:
    from tidelog.node.node import Node

REQUEST_BYTES_MAX: Final = 8192
CONNECTIONS_MAX: Final = 64
EXCHANGE_S_MAX: Final = 10.0
_RENDER_SHARE: Final = 20
_RENDER_S_FREE: Final = 0.02
"""The page of a large node takes long: then it is made anew only as soon as that is a small share of the time."""
_log = logging.getLogger("tidelog.http")


class HttpListener:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.connections: set[_Exchange] = set()
        self._listening: Listener | None = None
        self._page = ""
        self._page_until_s = 0.0
        self._waiting: list[Callable[[str], None]] = []

    @classmethod
    async def open(cls, node: Node) -> HttpListener | None:
        """None when `tidelog.http.listener` is empty, or when its default address is taken, as by a second node."""
        where = node.config.get_str("tidelog.http.listener")
        if not where:
            return None
        host, _, port = where.rpartition(":")
        opened = cls(node)
        try:
            opened._listening = await node.ports.net.listen(host.strip("[]"), int(port), lambda: _Exchange(opened))
        except ListenError as error:
            if node.config.is_set("tidelog.http.listener"):
                raise
            _log.warning("no /ready and /metrics: %s", error)
            return None
        return opened

    @property
    def address(self) -> str:
        assert self._listening is not None
        return address(self._listening.host, self._listening.port)

    def page(self, deliver: Callable[[str], None]) -> None:
        """Hand over the page, perhaps later: it is made in slices, between which others have their turn, and once for
        all who ask meanwhile."""
        if self.node.ports.clock.monotonic_s() < self._page_until_s:
            deliver(self._page)
            return
        self._waiting.append(deliver)
        if len(self._waiting) == 1:
            self._render(slices(self.node), [], 0.0)

    def _render(self, rest: Iterator[str], parts: list[str], took_s: float) -> None:
        monotonic_s = self.node.ports.clock.monotonic_s
        started_s = monotonic_s()
        part = next(rest, None)
        took_s += monotonic_s() - started_s
        if part is not None:
            parts.append(part)
            asyncio.get_running_loop().call_soon(self._render, rest, parts, took_s)
            return
        self._page = "".join(parts)
        if took_s > _RENDER_S_FREE:
            self._page_until_s = started_s + took_s * _RENDER_SHARE
        waiting, self._waiting = self._waiting, []
        for deliver in waiting:
            deliver(self._page)

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for exchange in list(self.connections):
            exchange.abort()


class _Exchange(asyncio.Protocol):
    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._node = listener.node
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_head = False
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only
        if len(self._listener.connections) >= CONNECTIONS_MAX:
            self.abort()
            return
        self._listener.connections.add(self)
        self._deadline = asyncio.get_running_loop().call_later(EXCHANGE_S_MAX, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listener.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._received += data
        if len(self._received) > REQUEST_BYTES_MAX:
            self._respond(431, "the request is too large\n")
        elif b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            self._route(bytes(self._received).split(b"\n", 1)[0].decode("latin-1").split())

    def _route(self, words: list[str]) -> None:
        if len(words) < 2 or words[0] not in ("GET", "HEAD"):
            self._respond(405, "only GET is answered here\n")
            return
        self._is_head = words[0] == "HEAD"
        match words[1].split("?", 1)[0]:
            case "/ready":
                state = "failed" if self._node.has_failed else self._node.state.value
                self._respond(200 if self._node.is_ready else 503, f"{state}\n")
            case "/metrics":
                self._is_answered = True  # but for the answer
                self._listener.page(self._respond_page)
            case _:
                self._respond(404, "there are /ready and /metrics\n")

    def _respond_page(self, page: str) -> None:
        self._respond(200, page, "text/plain; version=0.0.4; charset=utf-8")

    def _respond(self, status: int, body: str, content_type: str = "text/plain; charset=utf-8") -> None:
        if self._transport is None:
            return
        self._is_answered = True
        payload = body.encode()
        head = (
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if self._is_head else payload))
        self._transport.close()
