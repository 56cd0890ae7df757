"""The node's small HTTP listener: /ready and /metrics. GET only, no keep-alive, no framework."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, cast

from tidelog.kernel.errors import ListenError
from tidelog.kernel.ports import Listener
from tidelog.node.listeners import address
from tidelog.node.metrics import render

if TYPE_CHECKING:
    from tidelog.node.node import Node

_REQUEST_BYTES_MAX: Final = 8192
_log = logging.getLogger("tidelog.http")


class HttpListener:
    def __init__(self, node: Node, listening: Listener) -> None:
        self._node = node
        self._listening = listening

    @classmethod
    async def open(cls, node: Node) -> HttpListener | None:
        """None when `tidelog.http.listener` is empty, or when its default address is taken, as by a second node."""
        where = node.config.get_str("tidelog.http.listener")
        if not where:
            return None
        host, _, port = where.rpartition(":")
        try:
            listening = await node.ports.net.listen(host.strip("[]"), int(port), lambda: _Exchange(node))
        except ListenError as error:
            if node.config.is_set("tidelog.http.listener"):
                raise
            _log.warning("no /ready and /metrics: %s", error)
            return None
        return cls(node, listening)

    @property
    def address(self) -> str:
        return address(self._listening.host, self._listening.port)

    def close(self) -> None:
        self._listening.close()


class _Exchange(asyncio.Protocol):
    def __init__(self, node: Node) -> None:
        self._node = node
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._is_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _REQUEST_BYTES_MAX:
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
                self._respond(200, render(self._node), "text/plain; version=0.0.4; charset=utf-8")
            case _:
                self._respond(404, "there are /ready and /metrics\n")

    def _respond(self, status: int, body: str, content_type: str = "text/plain; charset=utf-8") -> None:
        if self._transport is None:
            return
        payload = body.encode()
        head = (
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if self._is_head else payload))
        self._transport.close()
        self._transport = None
