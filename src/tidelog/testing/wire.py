"""One request over a plain socket: what a fixture and a protocol test need, without a client library."""

from __future__ import annotations

import socket
from typing import Any, TypeVar

from msgspec import Struct

from tidelog.protocol.codec import decode
from tidelog.protocol.frame import encode_request, read_response_head

ResponseT = TypeVar("ResponseT", bound=Struct)


class Wire:
    """A connection that speaks one request at a time. A context manager."""

    def __init__(self, address: str, *, client_id: str | None = "tidelog-testing", timeout_s: float = 30) -> None:
        host, _, port = address.rpartition(":")
        self._client_id = client_id
        self._correlation_id = 0
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Struct, version: int) -> None:
        self._correlation_id += 1
        self.socket.sendall(encode_request(request, version, self._correlation_id, self._client_id))

    def receive(self, shape: type[ResponseT], version: int) -> ResponseT:
        size = int.from_bytes(self._read(4), "big")
        frame = self._read(size)
        api: Any = shape
        _, position = read_response_head(api.API_KEY, version, frame)
        return decode(shape, version, frame[position:])

    def call(self, request: Struct, version: int, shape: type[ResponseT]) -> ResponseT:
        self.send(request, version)
        return self.receive(shape, version)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)
