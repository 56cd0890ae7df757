"""The log's side of the tiers: how many records of a topic fall into which window, cut at the offsets where a reader
began and where it has come to.

The log is counted by headers first, as in windows.py; where something seems off the caller has it counted again with
every record's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from tidelog.audit.lives import Extent
from tidelog.audit.tiers import Gone, Reach
from tidelog.protocol.batch import iter_headers
from tidelog.spark.audit.log import PartitionLog, Reading, Stretch, read_partition
from tidelog.spark.link import Link


class Piece(NamedTuple):
    partition: int
    start: int
    end: int
    windows: Counter[int]


@dataclass(slots=True)
class TopicLog:
    """All that readers can read of a topic."""

    pieces: list[Piece] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)

    def windows(self) -> Counter[int]:
        return _sum(self.pieces)

    def reach(self, extents: Mapping[int, Extent]) -> Reach:
        """Of a reader, by the offsets that it has come by; in a partition that it knows nothing of all is ahead."""
        bounds = {number: extents.get(number, Extent(0, 0)) for number in self.ends}
        return Reach(
            _sum(one for one in self.pieces if _is_in(one, bounds[one.partition])),
            _sum(one for one in self.pieces if one.start >= bounds[one.partition].next),
        )


def count_log(
    link: Link, logs: Sequence[PartitionLog], extents: Iterable[Mapping[int, Extent]], how: Reading
) -> TopicLog:
    """`logs` are the partitions as the audit has read them, from their start to their end; what lies before and behind
    is read here. With `how.every_time` nothing of what was read before is taken."""
    found = TopicLog()
    readers = list(extents)
    for log in logs:
        stretch = log.stretch
        number, start, end = stretch.partition, stretch.log_start, max(stretch.stable_end, stretch.end)
        found.ends[number] = end
        cuts = {stretch.start, stretch.end}
        cuts.update(offset for reader in readers if number in reader for offset in reader[number])
        places = sorted({start, end, *(cut for cut in cuts if start < cut < end)})
        parts = []
        for first, last in pairwise(places):
            is_known = (first, last) == (stretch.start, stretch.end) and log.gaps is not None and not how.every_time
            part = log if is_known else read_partition(link, replace(stretch, start=first, end=last), how)
            parts.append(part)
            found.pieces.append(Piece(number, first, last, part.windows))
        found.gone += _gone(link, stretch, parts)
    return found


def _gone(link: Link, stretch: Stretch, parts: Sequence[PartitionLog]) -> Iterable[Gone]:
    name = f"{stretch.topic}-{stretch.partition}"
    log_start = max([stretch.log_start, *(end for part in parts for _, end in part.deleted.pairs())])
    if log_start:
        yield Gone(_first_window_end(link, stretch, log_start), f"{name} has lost all before {log_start}")
    # What retention took while it was read is no gap of the cleaner's.
    gaps = [pair for part in parts for pair in (part.gaps.pairs() if part.gaps is not None else [(log_start, -1)])]
    if any(last < 0 or last > log_start for _, last in gaps):
        yield Gone(None, f"{name} was compacted")
    if stretch.stable_end < stretch.log_end:
        yield Gone(None, f"{name} has records of transactions that are not decided")


def _first_window_end(link: Link, stretch: Stretch, log_start: int) -> int | None:
    """Of the first batch that is left; what was before it is of that window or of an earlier one, as far as times go up
    with offsets. None when nothing is left."""
    end = max(stretch.stable_end, stretch.end)
    if log_start >= end:
        return None
    for chunk in link.fetch(stretch.topic, stretch.partition, log_start, end, topic_id=stretch.topic_id):
        for _, header in iter_headers(chunk.data):
            return header.max_timestamp + 1
    return None


def _is_in(piece: Piece, extent: Extent) -> bool:
    return extent.first <= piece.start < extent.next


def _sum(pieces: Iterable[Piece]) -> Counter[int]:
    total: Counter[int] = Counter()
    for one in pieces:
        total.update(one.windows)
    return total
