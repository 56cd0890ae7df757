"""Records of a small topic in plain Python: what `read_committed` sees of it now, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.client.aborted import Aborted
from tidelog.protocol.batch import Record, iter_headers, iter_records
from tidelog.spark.link import At, Link


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


def records(link: Link, topic: str, *, starts: Mapping[At, int] | None = None) -> Iterator[tuple[Place, Record]]:
    """Up to the last stable offsets at the time of asking. A topic that is not there has none."""
    numbers = link.existing([topic]).get(topic, [])
    places = [(topic, number) for number in numbers]
    first, last = link.earliest(places), link.latest(places)
    for at in places:
        start = max(first[at], (starts or {}).get(at, 0))
        if start < last[at]:
            yield from _partition(link, at, start, last[at])


def _partition(link: Link, at: At, start: int, end: int) -> Iterator[tuple[Place, Record]]:
    for chunk in link.fetch(*at, start, end):
        aborted = Aborted(chunk.aborted)
        for position, header in iter_headers(chunk.data):
            if aborted.hides(header) or header.is_control:
                continue
            for record in iter_records(chunk.data[position : position + header.size], header):
                if start <= record.offset < end:
                    yield Place(*at, record.offset), record
