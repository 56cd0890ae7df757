"""Placing and dividing records in plain Python: what runs without numba, and what the native twin is held against."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from tidelog.protocol.partitioner import partition_for_key
from tidelog.protocol.records.columns import Columns


def place(columns: Columns, partitions: int, given: Any) -> array[int]:
    """The partition of each record: the given one, that of its key, or -1."""
    out = array("q", [-1]) * columns.count if given is None else array("q", given)
    data = memoryview(columns.data)
    for row, (start, size) in enumerate(zip(columns.key_start, columns.key_size, strict=True)):
        if out[row] < 0 and size >= 0:
            if start < 0 or start + size > len(data):
                raise ValueError("a position in the columns is outside their data")
            out[row] = partition_for_key(bytes(data[start : start + size]), partitions)
    return out


def spread(places: array[int], first: int, rows_per_block: int, partitions: int) -> int:
    """Fills in what is -1, a block of rows for each partition in turn; the number of blocks."""
    filled = 0
    for row, partition in enumerate(places):
        if partition < 0:
            places[row] = (filled // rows_per_block + first) % partitions
            filled += 1
    return -(-filled // rows_per_block)


def groups(places: array[int]) -> Iterator[tuple[int, list[int]]]:
    """(partition, its rows in their order)."""
    found: dict[int, list[int]] = {}
    for row, partition in enumerate(places):
        found.setdefault(partition, []).append(row)
    yield from sorted(found.items())


def take(column: Sequence[int], rows: Sequence[int]) -> array[int]:
    return array("q", [column[row] for row in rows])


def header_rows(header_first: Sequence[int], rows: Sequence[int]) -> tuple[array[int], list[int]]:
    """(header_first of the rows that are taken, which headers they have)."""
    ends, which = array("q", [0]), list[int]()
    for row in rows:
        which += range(header_first[row], header_first[row + 1])
        ends.append(len(which))
    return ends, which
