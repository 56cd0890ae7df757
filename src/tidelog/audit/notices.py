"""What is published to the audit topic: a JSON document for each window that a producer or consumer has left behind.

    {"version": 1, "tier": "producer", "host": "web-3", "name": "checkout", "incarnation": "5f0c...", "sequence": 4,
     "started_ms": 1790000000000, "window_ms": 600000, "complete_to_ms": 1790003400000, "ended": false,
     "topics": ["orders"],
     "counts": [{"topic": "orders", "begin_ms": 1790002800000, "count": 120, "doubtful": 0}],
     "positions": []}

Counts are added to those of earlier notices: a late record is one more in a window that was told before. A notice that
is there twice (a retry) has the same incarnation and sequence. The record's key is tier/host/name, so all of one member
are in order. A consumer says as well which offsets it was handed since its last notice, as the first and the one behind
the last of each partition: what lies behind those of its whole tier is lag.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.kernel.errors import TidelogError

AUDIT_TOPIC: Final = "tidelog-audit"
PRODUCER: Final = "producer"
LOG: Final = "log"
LAKE: Final = "lake"
VERSION: Final = 1


class NoticeError(TidelogError):
    """A record of the audit topic that is no notice."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    begin_ms: int
    """Of the window."""
    count: int
    """Delivered and acknowledged, or consumed."""
    doubtful: int = 0
    """Given up by the client: it may be in the log or not."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    first: int
    next: int
    """Behind the last."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    tier: str
    """`producer`, or a name for the readers that belong together, such as a group."""
    host: str
    name: str
    """Of the application on its host."""
    incarnation: str
    """Another one for each start."""
    sequence: int
    started_ms: int
    window_ms: int
    complete_to_ms: int
    """All before this time is counted; nothing of it is under way."""
    ended: bool = False
    """It was closed in order and counts nothing more."""
    topics: tuple[str, ...] = ()
    """Those that it said it would use, and those that it has used."""
    counts: tuple[Count, ...] = ()
    positions: tuple[Position, ...] = ()

    @property
    def key(self) -> bytes:
        return f"{self.tier}/{self.host}/{self.name}".encode()


def encode(notice: Notice) -> bytes:
    return msgspec.json.encode(notice)


def decode(value: bytes | None) -> Notice:
    try:
        notice = msgspec.json.decode(value or b"", type=Notice)
    except msgspec.DecodeError as error:
        raise NoticeError(f"not a notice of the audit: {error}") from None
    if notice.version != VERSION:
        raise NoticeError(f"a notice of version {notice.version}; known is {VERSION}")
    if notice.window_ms < 1:
        raise NoticeError(f"a notice with windows of {notice.window_ms} ms")
    return notice
