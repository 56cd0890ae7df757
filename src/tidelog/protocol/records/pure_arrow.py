"""Rows for Arrow in plain Python: an object per value, which is what there is without numba."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import APPEND_TIME, CONTROL
from tidelog.protocol.records.columns import Column, Columns


def chosen(columns: Columns, control: bool, keep: Any) -> list[int] | None:
    """The rows to take, or None for all."""
    hidden = [not control and bool(attributes & CONTROL) for attributes in columns.batches.attributes]
    if keep is None and not any(hidden):
        return None
    kept = [True] * columns.count if keep is None else keep
    return [row for row, batch in enumerate(columns.batch) if kept[row] and not hidden[batch]]


def take(column: Column, rows: Sequence[int] | None) -> Column:
    return column if rows is None else array("q", [column[row] for row in rows])


def timestamp_types(columns: Columns, rows: Sequence[int] | None) -> array[int]:
    kinds = [int(bool(attributes & APPEND_TIME)) for attributes in columns.batches.attributes]
    return array("i", [kinds[batch] for batch in take(columns.batch, rows)])


def binary(data: Buffer, starts: Column, sizes: Column) -> pa.Array:
    content = bytes(data)
    values = [None if size < 0 else content[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return pa.array(values, pa.binary())


def headers(columns: Columns, rows: Sequence[int] | None) -> tuple[array[int], Any, list[int]]:
    """(where each record's list ends in the headers taken, which records have one, the headers taken)."""
    first = columns.header_first
    ranges = [(first[row], first[row + 1]) for row in (range(columns.count) if rows is None else rows)]
    ends = array("i", accumulate((last - begin for begin, last in ranges), initial=0))
    valid = pa.array([begin < last for begin, last in ranges], pa.bool_()).buffers()[1]
    return ends, valid, [header for begin, last in ranges for header in range(begin, last)]
