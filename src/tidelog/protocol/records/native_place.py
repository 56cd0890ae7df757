"""Placing and dividing records with numpy and numba."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tidelog.protocol.records import kernels_place
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.compiling import as_bytes, as_column


def place(columns: Columns, partitions: int, given: Any) -> Any:
    """The partition of each record: the given one, that of its key, or -1."""
    out = np.full(columns.count, -1, np.int64) if given is None else np.array(given, np.int64)
    data = as_bytes(memoryview(columns.data).cast("B"))
    if kernels_place.place_keys(data, as_column(columns.key_start), as_column(columns.key_size), partitions, out):
        raise ValueError("a position in the columns is outside their data")
    return out


def spread(places: Any, first: int, rows_per_block: int, partitions: int) -> int:
    """Fills in what is -1, a block of rows for each partition in turn; the number of blocks."""
    rows = np.flatnonzero(places < 0)
    blocks = np.arange(len(rows), dtype=np.int64) // rows_per_block
    places[rows] = (blocks + first) % partitions
    return int(blocks[-1]) + 1 if len(rows) else 0


def groups(places: Any) -> Iterator[tuple[int, Any]]:
    """(partition, its rows in their order)."""
    if not len(places):
        return
    order = np.argsort(places, kind="stable")
    found, starts = np.unique(places[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)


def take(column: Any, rows: Any) -> Any:
    return as_column(column)[rows]


def header_rows(header_first: Any, rows: Any) -> tuple[Any, Any]:
    """(header_first of the rows that are taken, which headers they have)."""
    first = as_column(header_first)
    begins, counts = first[rows], first[rows + 1] - first[rows]
    ends = np.concatenate([[0], np.cumsum(counts)])
    which = np.repeat(begins - ends[:-1], counts) + np.arange(ends[-1])
    return ends, which
