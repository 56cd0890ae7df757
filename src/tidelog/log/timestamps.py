"""Finding records by their time: the indexes lead to one batch, and only that one is taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.log.checking import Damaged, Place, check_batch, check_length, locate, walk
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.reading import Read, waiting
from tidelog.log.segment import Segment
from tidelog.protocol.batch import Record, iter_records


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_timestamp(
    segments: Sequence[Segment],
    timestamp: int,
    log_start_offset: int,
    end_offset: int,
    epochs: LeaderEpochs,
    read: Read = waiting,
) -> TimestampOffset | None:
    """The first record, from the start of the log and before end_offset, whose timestamp is at least the one given.
    Damaged when that cannot be told."""
    for segment in segments:
        segment.load_max_timestamp(read)
        if segment.max_timestamp < timestamp:
            continue
        from_offset = log_start_offset
        # Deleted records may be the only ones of a batch that are new enough: then the next batch is asked.
        while (place := _first_batch(segment, timestamp, from_offset, read)) is not None:
            header = place.header
            if header.base_offset >= end_offset:
                return None
            record = _first_record(
                segment,
                place,
                epochs,
                lambda record: record.timestamp >= timestamp and record.offset >= log_start_offset,
                read,
            )
            if record is not None:
                if record.offset >= end_offset:
                    return None
                return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
            from_offset = header.next_offset
    return None


def find_max_timestamp(
    segments: Sequence[Segment], epochs: LeaderEpochs, read: Read = waiting
) -> TimestampOffset | None:
    for segment in segments:
        segment.load_max_timestamp(read)
    newest = max(segments, key=lambda segment: segment.max_timestamp)
    timestamp = newest.max_timestamp
    if timestamp < 0:
        return None
    place = locate(newest, newest.max_timestamp_offset, read)
    if place is None:
        return None
    record = _first_record(newest, place, epochs, lambda record: record.timestamp == timestamp, read)
    if record is None:
        return None
    return TimestampOffset(record.timestamp, record.offset, place.header.leader_epoch)


def _first_batch(segment: Segment, timestamp: int, from_offset: int, read: Read) -> Place | None:
    """The first batch with such a timestamp or a later one, not ending below from_offset."""
    start = segment.with_indexes(lambda: segment.time_index.lookup(timestamp, read))
    found = locate(segment, max(start, from_offset), read)
    if found is None:
        return None
    for place in walk(segment, found, read):
        if place.header.max_timestamp >= timestamp and place.header.last_offset >= from_offset:
            return place
    return None


def _first_record(
    segment: Segment, place: Place, epochs: LeaderEpochs, wanted: Callable[[Record], bool], read: Read
) -> Record | None:
    check_length(segment, place.position, place.header, read)
    batch = segment.read_batch(place.position, place.header, read)
    check_batch(segment, batch, place, place.header.next_offset, epochs, read)
    try:
        for record in iter_records(batch, place.header):
            if wanted(record):
                return record
    except ProtocolError as error:
        raise Damaged(segment, place.position, str(error)) from None
    return None
