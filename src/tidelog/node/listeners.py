"""Listeners as configured: names, protocols and addresses, checked together. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.metadata.config import ConfigError

AUTO = "auto"
_SUPPORTED = ("PLAINTEXT",)
_ENDPOINT = r"([A-Za-z0-9_.\-]+)://(\[[0-9a-fA-F:.%]*\]|[^:\[\]/]*):(-?\d{1,5})"
WILDCARDS = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    name: str
    protocol: str
    host: str
    """Empty is every interface."""
    port: int
    """0 asks the system for a free one."""

    @property
    def is_wildcard(self) -> bool:
        return self.host in WILDCARDS


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def protocol_map(text: str, controller_names: Sequence[str], *, is_set: bool) -> dict[str, str]:
    """listener.security.protocol.map as a dictionary of upper-case names."""
    result: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in entry.rpartition(":"))
        if not (name and colon and protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")):
            raise ConfigError(
                f"listener.security.protocol.map={text}: expected NAME:PROTOCOL pairs with the protocol PLAINTEXT,"
                f" SSL, SASL_PLAINTEXT or SASL_SSL, not {entry}"
            )
        result[name] = protocol
    if not is_set:
        for name in controller_names:
            result.setdefault(name.upper(), "PLAINTEXT")
    return result


def parse_listeners(config: str, entries: Sequence[str], protocols: dict[str, str]) -> tuple[Listener, ...]:
    """The listeners that `config` (listeners or advertised.listeners) names."""
    found = tuple(_one(config, entry, protocols) for entry in entries)
    names = [listener.name for listener in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{config}={','.join(entries)}: the name {name} is used twice")
    return found


def _one(config: str, entry: str, protocols: dict[str, str]) -> Listener:
    match = re.fullmatch(_ENDPOINT, entry)
    if match is None or not 0 <= int(match[3]) <= 65535:
        raise ConfigError(f"{config}={entry}: expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092")
    name = match[1].upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(f"{config}={entry}: listener.security.protocol.map has no entry for {name}")
    if protocol not in _SUPPORTED:
        raise ConfigError(f"{config}={entry}: {protocol} is not supported yet, only PLAINTEXT is")
    return Listener(name, protocol, match[2].strip("[]"), int(match[3]))


def check_ports(listeners: Sequence[Listener]) -> None:
    by_port: dict[int, Listener] = {}
    for listener in listeners:
        other = by_port.get(listener.port) if listener.port else None
        if other is not None and (other.host == listener.host or other.is_wildcard or listener.is_wildcard):
            raise ConfigError(f"listeners: {other.name} and {listener.name} both want port {listener.port}")
        by_port[listener.port] = listener


def check_advertised(advertised: Sequence[Listener], listeners: Sequence[Listener]) -> None:
    names = [listener.name for listener in listeners]
    for entry in advertised:
        if entry.name not in names:
            raise ConfigError(f"advertised.listeners: {entry.name} is not one of the listeners: {', '.join(names)}")
        if entry.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners: clients cannot connect to {entry.host}; name an address that they can reach,"
                f" or leave advertised.listeners at {AUTO}"
            )
