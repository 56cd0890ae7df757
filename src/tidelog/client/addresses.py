"""Addresses as people write them: `host:port`, several with commas, IPv6 in brackets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.client.errors import ClientError

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(servers: str | Sequence[str]) -> tuple[Address, ...]:
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_parse(part.strip()) for part in parts if part.strip())
    if not addresses:
        raise ClientError("no bootstrap server is given; expected HOST:PORT, such as 127.0.0.1:9092")
    return addresses


def _parse(text: str) -> Address:
    _, separator, rest = text.partition("://")  # people paste a listener: PLAINTEXT://host:port
    text = rest if separator else text
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"{text!r} is not an address; expected HOST:PORT, such as 127.0.0.1:9092")
    return Address(host, int(port))
