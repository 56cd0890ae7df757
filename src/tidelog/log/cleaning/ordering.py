"""From an open log to the order that a cleaning needs: what it must know, read where that does not keep the loop."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.log.cleaning.order import CleanOrder, LastBatch, Source
from tidelog.log.cleaning.range import CleanRange
from tidelog.log.partition_log import PartitionLog
from tidelog.log.reading import Read, waiting
from tidelog.log.segment import Segment
from tidelog.log.txn_index import Aborted

READ_BYTES_MIN: Final = 1 << 20
"""What is done for each stretch of batches, whatever its size, counts where it is smaller."""


def clean_order(
    log: PartitionLog,
    found: CleanRange,
    *,
    now_ms: int,
    keys_max: int,
    seed: bytes,
    read_bytes: int = READ_BYTES_MIN,
    step_bytes: int = 1,
    read: Read = waiting,
) -> CleanOrder:
    config, limit = log.config, found.first_uncleanable_offset
    return CleanOrder(
        directory=log.directory,
        sources=_sources(log, limit, read),
        first_dirty_offset=found.first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        keys_max=max(keys_max, 1),
        seed=seed,
        read_bytes=max(read_bytes, READ_BYTES_MIN),
        step_bytes=step_bytes,
        producers=_last_batches(log),
        aborted_later=_aborted_later(log, limit, read),
    )


def _sources(log: PartitionLog, limit: int, read: Read) -> tuple[Source, ...]:
    segments = log.segments
    found = []
    for number, segment in enumerate(segments[:-1]):
        if segment.base_offset >= limit:
            break
        segment.with_indexes(partial(_load_indexes, segment, read))
        found.append(
            Source(
                segment.base_offset,
                segments[number + 1].base_offset,
                segment.size,
                segment.index.count,
                segment.time_index.count,
                segment.aborted is not None and segment.aborted.last_offset >= 0,
            )
        )
    return tuple(found)


def _load_indexes(segment: Segment, read: Read) -> None:
    segment.index.last_position(read)
    segment.time_index.last(read)


def _last_batches(log: PartitionLog) -> dict[int, LastBatch]:
    return {
        producer_id: LastBatch(state.batches[-1].last_offset if state.batches else -1, state.epoch)
        for producer_id, state in log.producers.items()
    }


def _aborted_later(log: PartitionLog, limit: int, read: Read) -> tuple[Aborted, ...]:
    return tuple(
        entry
        for segment in log.segments
        if segment.base_offset >= limit and segment.aborted is not None
        for entry in segment.aborted.entries(read)
        if entry.first_offset < limit
    )
