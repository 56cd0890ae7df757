"""Rows for Arrow by numpy and numba: no object per record."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import APPEND_TIME, CONTROL
from tidelog.protocol.records import kernels_arrow
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.compiling import as_bytes, as_column

_INT32_MAX: Final = 2**31 - 1


def chosen(columns: Columns, control: bool, keep: Any) -> Any:
    """The rows to take, or None for all."""
    attributes = as_column(columns.batches.attributes)
    mask = None if keep is None else _mask(keep)
    if not control and (attributes & CONTROL).any():
        visible = (attributes & CONTROL == 0)[columns.batch]
        mask = visible if mask is None else mask & visible
    return None if mask is None or mask.all() else np.flatnonzero(mask)


def _mask(keep: Any) -> Any:
    if isinstance(keep, bytes | bytearray | memoryview):
        return np.frombuffer(keep, np.uint8) != 0
    return np.array(keep, np.bool_)


def take(column: Any, rows: Any) -> Any:
    return as_column(column if rows is None else column[rows])


def timestamp_types(columns: Columns, rows: Any) -> Any:
    stamped = as_column(columns.batches.attributes) & APPEND_TIME != 0
    return stamped.astype(np.int32)[take(columns.batch, rows)]


def binary(data: Buffer, starts: Any, sizes: Any) -> pa.Array:
    offsets = np.empty(len(sizes) + 1, np.int32)
    total = kernels_arrow.lay_out(sizes, offsets)
    if total < 0:
        raise ValueError("the values of a column are more than 2 GiB: decode the log in smaller portions")
    out = np.empty(total, np.uint8)
    if kernels_arrow.gather(as_bytes(memoryview(data).cast("B")), starts, sizes, offsets, out) < 0:
        raise ValueError("a position in the columns is outside their data")
    buffers = [_bitmap(sizes >= 0), pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def headers(columns: Columns, rows: Any) -> tuple[Any, Any, Any]:
    """(where each record's list ends in the headers taken, which records have one, the headers taken or None: all)."""
    first = as_column(columns.header_first)
    starts, counts = first[:-1], np.diff(first)
    if rows is not None:
        starts, counts = starts[rows], counts[rows]
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    if ends[-1] > _INT32_MAX:
        raise ValueError("the records have more than 2^31 headers: decode the log in smaller portions")
    picked = None if rows is None else np.arange(ends[-1]) + np.repeat(starts - ends[:-1], counts)
    return ends.astype(np.int32), _bitmap(counts > 0), picked


def _bitmap(valid: Any) -> Any:
    """Arrow's bits of what is not null, or None when nothing is."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
