"""Finding records by their time: the indexes lead to one batch, and only that one is taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.log.errors import LogError
from tidelog.log.segment import Segment
from tidelog.protocol.batch import BatchHeader, Record, iter_records
from tidelog.protocol.errors import ErrorCode


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_timestamp(
    segments: Sequence[Segment], timestamp: int, log_start_offset: int, end_offset: int
) -> TimestampOffset | None:
    """The first record, from the start of the log and before end_offset, whose timestamp is at least the one given."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        from_offset = log_start_offset
        # Deleted records may be the only ones of a batch that are new enough: then the next batch is asked.
        while (found := segment.find_timestamp(timestamp, from_offset)) is not None:
            position, header = found
            if header.base_offset >= end_offset:
                return None
            record = _first(
                segment,
                position,
                header,
                lambda record: record.timestamp >= timestamp and record.offset >= log_start_offset,
            )
            if record is not None:
                if record.offset >= end_offset:
                    return None
                return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
            from_offset = header.next_offset
    return None


def find_max_timestamp(segments: Sequence[Segment]) -> TimestampOffset | None:
    newest = max(segments, key=lambda segment: segment.max_timestamp)
    timestamp = newest.max_timestamp
    if timestamp < 0:
        return None
    found = newest.find(newest.max_timestamp_offset)
    if found is None:
        return None
    position, header = found
    record = _first(newest, position, header, lambda record: record.timestamp == timestamp)
    if record is None:
        return None
    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)


def _first(segment: Segment, position: int, header: BatchHeader, wanted: Callable[[Record], bool]) -> Record | None:
    try:
        for record in iter_records(segment.read_batch(position, header), header):
            if wanted(record):
                return record
    except ProtocolError as error:
        raise LogError(ErrorCode.CORRUPT_MESSAGE, f"{segment.log.path} at {position}: {error}") from None
    return None
