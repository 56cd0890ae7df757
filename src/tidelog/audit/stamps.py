"""The headers that an audited record carries: when it was made, where, and by whom.

The time is the record's own timestamp as well, so every tier finds the same window without looking into headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

TIME: Final = "tidelog.audit.time"
"""Milliseconds since 1970, in decimal."""
HOST: Final = "tidelog.audit.host"
PRODUCER: Final = "tidelog.audit.producer"

Headers = Sequence[tuple[str, bytes | None]]


class Stamp(NamedTuple):
    time_ms: int
    host: str
    producer: str


def stamped(headers: Iterable[tuple[str, bytes | None]] | None, stamp: Stamp) -> list[tuple[str, bytes | None]]:
    """The headers of the application, and ours behind them. A record that is passed on has its first stamp replaced."""
    kept = [pair for pair in headers or () if pair[0] not in (TIME, HOST, PRODUCER)]
    return [
        *kept,
        (TIME, b"%d" % stamp.time_ms),
        (HOST, stamp.host.encode()),
        (PRODUCER, stamp.producer.encode()),
    ]


def stamp_of(headers: Headers | None) -> Stamp | None:
    """None for a record that has no stamp, or one that cannot be read."""
    found = dict(headers or ())
    time, host, producer = found.get(TIME), found.get(HOST), found.get(PRODUCER)
    if time is None or host is None or producer is None or not time.isdigit():
        return None
    return Stamp(int(time), host.decode(errors="replace"), producer.decode(errors="replace"))
