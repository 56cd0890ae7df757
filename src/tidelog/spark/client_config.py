"""Kafka's client configs as a Spark user gives them (`kafka.*` without its prefix), to the settings of the client core.

A config that would change what is read or who may read it, and that the client core does not have, is refused; one that
only tunes the Java client is let pass, so that a job can be moved here as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.client.addresses import parse_bootstrap
from tidelog.client.errors import ClientError
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, FetchLimits
from tidelog.client.options import ClientOptions
from tidelog.client.security_config import NAMES as SECURITY_NAMES
from tidelog.client.security_config import SecurityConfigError, parse_security
from tidelog.kernel.errors import TidelogError

Isolation = Literal["read_committed", "read_uncommitted"]
LEVELS: Final[Mapping[str, int]] = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}

NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "request.timeout.ms": (30_000, 100),
    "default.api.timeout.ms": (120_000, 100),
    "socket.connection.setup.timeout.ms": (10_000, 100),
    "retry.backoff.ms": (50, 1),
    "retry.backoff.max.ms": (1_000, 1),
    "metadata.max.age.ms": (300_000, 100),
    "fetch.max.bytes": (52_428_800, 1),
    "max.partition.fetch.bytes": (4_194_304, 1),
    "fetch.max.wait.ms": (500, 0),
    "fetch.min.bytes": (1, 1),
}
"""Name to default and least value. The largest is that of 32 bits."""
TEXTS: Final = ("bootstrap.servers", "client.id", "isolation.level", *SECURITY_NAMES)
_GREATEST: Final = 2**31 - 1

_NOT_HERE: Final[Mapping[str, str]] = {
    "auto.offset.reset": "use the option startingOffsets",
    "key.deserializer": "keys are binary; cast or decode the column",
    "value.deserializer": "values are binary; cast or decode the column",
    "key.serializer": "keys are binary",
    "value.serializer": "values are binary",
    "enable.auto.commit": "use the option commitGroup to publish progress",
    "interceptor.classes": "there is no Java in the client",
}
_TUNING: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "group.id",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)
_SECURITY: Final = ("sasl.", "ssl.", "security.")


class ConfigError(TidelogError):
    """A config that is missing, misspelt or not allowed; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    bootstrap: str
    options: ClientOptions
    limits: FetchLimits
    isolation: Isolation | None
    """None when the config does not say."""


def parse_config(config: Mapping[str, str], *, prefix: str = "") -> ClientConfig:
    """ConfigError for anything that cannot be honoured; `prefix` is what the user writes before the names."""
    given = {name.lower(): value for name, value in config.items()}
    for name in given:
        _check_known(name, prefix)
    bootstrap = given.get("bootstrap.servers", "")
    if not bootstrap.strip():
        raise ConfigError(f"{prefix}bootstrap.servers is missing; expected HOST:PORT, several with commas")
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise ConfigError(f"{prefix}bootstrap.servers: {error}") from None
    try:
        security = parse_security(given, prefix=prefix)
    except SecurityConfigError as error:
        raise ConfigError(str(error)) from None
    isolation = given.get("isolation.level")
    if isolation is not None and isolation not in LEVELS:
        raise ConfigError(f"{prefix}isolation.level={isolation}: expected {' or '.join(LEVELS)}")
    numbers = {name: _number(prefix, name, given.get(name)) for name in NUMBERS}
    return ClientConfig(
        bootstrap=bootstrap,
        options=ClientOptions(
            client_id=given.get("client.id", "tidelog-spark"),
            connect_timeout_s=numbers["socket.connection.setup.timeout.ms"] / 1000,
            request_timeout_s=numbers["request.timeout.ms"] / 1000,
            api_timeout_s=numbers["default.api.timeout.ms"] / 1000,
            retry_backoff_ms=numbers["retry.backoff.ms"],
            retry_backoff_ms_max=max(numbers["retry.backoff.max.ms"], numbers["retry.backoff.ms"]),
            metadata_max_age_s=numbers["metadata.max.age.ms"] / 1000,
            security=security,
        ),
        limits=FetchLimits(
            max_wait_ms=numbers["fetch.max.wait.ms"],
            min_bytes=numbers["fetch.min.bytes"],
            max_bytes=numbers["fetch.max.bytes"],
            partition_max_bytes=numbers["max.partition.fetch.bytes"],
        ),
        isolation="read_committed"
        if isolation == "read_committed"
        else None
        if isolation is None
        else "read_uncommitted",
    )


def _check_known(name: str, prefix: str) -> None:
    if name in NUMBERS or name in TEXTS or name in _TUNING:
        return
    if name in _NOT_HERE:
        raise ConfigError(f"{prefix}{name} is not supported: {_NOT_HERE[name]}")
    if name.startswith(_SECURITY):
        allowed = ", ".join(prefix + one for one in SECURITY_NAMES)
        raise ConfigError(f"{prefix}{name} is not supported. Those that are: {allowed}")
    near = difflib.get_close_matches(name, [*NUMBERS, *TEXTS, *_TUNING], n=1, cutoff=0.75)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    allowed = ", ".join(prefix + one for one in sorted([*TEXTS, *NUMBERS]))
    raise ConfigError(f"{prefix}{name} is not a config of this client{hint} Those with an effect: {allowed}")


def _number(prefix: str, name: str, text: str | None) -> int:
    default, least = NUMBERS[name]
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= _GREATEST:
        raise ConfigError(f"{prefix}{name}={text}: expected a whole number from {least} to {_GREATEST}")
    return number
