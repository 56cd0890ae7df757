"""What a cleaning is told when it begins, all of it plain values: it may be done in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.log.txn_index import Aborted


class Source(NamedTuple):
    """One segment that is to be cleaned."""

    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    size: int
    index_entries: int
    time_index_entries: int
    has_aborted: bool


class LastBatch(NamedTuple):
    """Of a producer that the log remembers: what it wrote last tells its sequence, or at least its epoch."""

    last_offset: int
    """-1 when a marker was the last of it."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOrder:
    directory: str
    sources: tuple[Source, ...]
    """From the start of the log to where it can be cleaned."""
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keys_max: int
    """How many keys there is memory for."""
    seed: bytes
    """Of the keys' hashes: nobody can know two keys that share one."""
    producers: dict[int, LastBatch]
    read_bytes: int
    """At a time, or one batch that is larger."""
    step_bytes: int
    """A step ends when so many were read and written, and with a group."""
    aborted_later: tuple[Aborted, ...] = ()
    """Transactions that began in the sources, with a marker that stands behind them."""
