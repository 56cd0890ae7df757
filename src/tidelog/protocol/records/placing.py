"""Which partition each record of some columns goes to, and the columns of each partition. No bytes are copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tidelog.protocol.records.columns import Column, Columns
from tidelog.protocol.records.twins import module

_PER_RECORD: Final = ("timestamp", "batch", "start", "end", "key_start", "key_size", "value_start", "value_size")
_PER_HEADER: Final = ("header_key_start", "header_key_size", "header_value_start", "header_value_size")


def place(columns: Columns, partitions: int, given: Any = None) -> Column:
    """The partition of each record: the given one where that is not negative, else by its key as Java places it
    (murmur2), else -1."""
    found: Column = module("place", columns.twin).place(columns, partitions, given)
    return found


def spread(columns: Columns, places: Column, first: int, rows_per_block: int, partitions: int) -> int:
    """Gives those that are -1 a partition: blocks of rows go to the partitions in turn, from the first one named.
    The number of blocks."""
    count: int = module("place", columns.twin).spread(places, first, rows_per_block, partitions)
    return count


def divide(columns: Columns, places: Column) -> Iterator[tuple[int, Columns]]:
    """(partition, its records in their order); their offsets count from 0."""
    loops = module("place", columns.twin)
    for partition, rows in loops.groups(places):
        yield partition, select(columns, rows)


def select(columns: Columns, rows: Any) -> Columns:
    """Only these records, in this order; their offsets count from 0."""
    loops = module("place", columns.twin)
    taken = {name: loops.take(getattr(columns, name), rows) for name in _PER_RECORD}
    header_first, headers = loops.header_rows(columns.header_first, rows)
    taken |= {name: loops.take(getattr(columns, name), headers) for name in _PER_HEADER}
    offsets = module("decode", columns.twin).column(range(len(rows)))
    return replace(columns, **taken, header_first=header_first, offset=offsets)
