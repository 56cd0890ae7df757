"""What the tests of the cleaner share: a compacted log on a simulated disk, a whole cleaning, and two readers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tests.unit.log.helpers import TINY, append
from tidelog.kernel.ports import Disk
from tidelog.log.cleaning.job import CleanJob, GroupCleaned, LogCleaned, Worked
from tidelog.log.cleaning.ordering import clean_order
from tidelog.log.cleaning.range import CleanRange, clean_range
from tidelog.log.cleaning.swap import finish_now, swap_steps
from tidelog.log.partition_log import AppendResult, PartitionLog
from tidelog.log.transactions import read_ending
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch, iter_headers, iter_records
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import TwinName

RETENTION_MS = 100
COMPACT = replace(
    TINY, cleanup_policy=frozenset({"compact"}), delete_retention_ms=RETENTION_MS, min_cleanable_dirty_ratio=0.0
)
SEED = bytes(range(16))
TWIN: TwinName = "pure"
"""Of those who do not say."""


class Seen(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


def put(
    log: PartitionLog,
    *records: tuple[bytes, bytes | None],
    timestamp: int = 1000,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> AppendResult:
    batch = build_batch(
        [RecordInput(key, value, timestamp + number) for number, (key, value) in enumerate(records)],
        codec=codec,
        attributes=TRANSACTIONAL if transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
    )
    return append(log, batch, now_ms=timestamp)


def stable_offset(log: PartitionLog) -> int:
    if log.transactions is None:
        return log.log_end_offset
    first = max(log.transactions.first_unstable_offset(log.log_end_offset), log.log_start_offset)
    return min(first, log.log_end_offset)


def range_of(log: PartitionLog, now_ms: int = 2000) -> CleanRange:
    return clean_range(
        log.segments,
        log.config,
        cleaned_to=log.cleaned_to,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        stable_offset=stable_offset(log),
        now_ms=now_ms,
    )


def clean(
    disk: Disk,
    log: PartitionLog,
    *,
    now_ms: int = 2000,
    keys_max: int = 1000,
    on_swapped: Callable[[], None] = lambda: None,
    twin: TwinName | None = None,
) -> LogCleaned | None:
    """A whole cleaning, as the node does it; None when there is nothing to clean."""
    found = range_of(log, now_ms)
    if not found.is_due(log.config):
        return None
    order = clean_order(log, found, now_ms=now_ms, keys_max=keys_max, seed=SEED)
    job = pickle.loads(pickle.dumps(CleanJob(order, twin or TWIN)))
    while True:
        step = job.step(disk)
        assert isinstance(step, Worked | GroupCleaned | LogCleaned)
        if isinstance(step, GroupCleaned):
            finish_now(disk, log, swap_steps(disk, log, step.base_offsets, now_ms))
            on_swapped()
        elif isinstance(step, LogCleaned):
            log.cleaned_to = step.end_offset
            return step


def clean_all(disk: Disk, log: PartitionLog, *, now_ms: int = 2000, keys_max: int = 1000) -> int:
    """Until nothing is dirty that can be cleaned; how many cleanings that took."""
    count = 0
    while clean(disk, log, now_ms=now_ms, keys_max=keys_max) is not None:
        count += 1
        assert count < 100
    return count


def roll(log: PartitionLog) -> None:
    log.roll(0)


def everything(log: PartitionLog, offset: int | None = None) -> list[Seen]:
    """All records but markers, as a reader of uncommitted ones gets them."""
    return [seen for _, _, records in _batches(log, offset) for seen in records]


def committed(log: PartitionLog, offset: int | None = None) -> list[Seen]:
    """As Java's consumer reads them, all in one fetch: aborted is what the broker lists, until a marker ends it."""
    start = log.log_start_offset if offset is None else offset
    end = stable_offset(log)
    if start >= end:
        return []
    coming = sorted(log.aborted_between(start, end), key=lambda entry: entry[1])
    aborted: set[int] = set()
    seen: list[Seen] = []
    for header, batch, records in _batches(log, start):
        if header.base_offset >= end:
            break
        while coming and coming[0][1] <= header.last_offset:
            aborted.add(coming.pop(0)[0])
        if header.is_control:
            ending = read_ending(batch, header)
            if ending is not None and not ending.committed:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            seen += [one for one in records if one.offset >= start]
    return seen


def _batches(log: PartitionLog, offset: int | None):  # type: ignore[no-untyped-def]
    offset = log.log_start_offset if offset is None else offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1000, end_offset=log.log_end_offset).data
        if not data:
            break
        for position, header in iter_headers(data):
            batch = data[position : position + header.size]
            records = () if header.is_control else iter_records(batch, header)
            yield header, batch, [Seen(record.offset, record.key, record.value) for record in records]
            assert header.next_offset > offset
            offset = header.next_offset


def headers(log: PartitionLog):  # type: ignore[no-untyped-def]
    return [header for header, _, _ in _batches(log, None)]


def values(seen: list[Seen]) -> dict[bytes, bytes]:
    """The last value of each key."""
    found: dict[bytes, bytes] = {}
    for _, key, value in seen:
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return found
