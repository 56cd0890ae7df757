"""The encoder's loops as numba compiles them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tidelog.protocol.records import kernels_encode
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.compiling import as_bytes, as_column
from tidelog.protocol.records.pure_encode import Payload


def payloads(columns: Columns, room: int) -> Iterator[Payload]:
    """The records in portions of at most room bytes; a record that is larger has a portion to itself."""
    data = as_bytes(memoryview(columns.data).cast("B"))
    records = _table(
        columns.offset,
        columns.timestamp,
        columns.key_start,
        columns.key_size,
        columns.value_start,
        columns.value_size,
    )
    headers = _table(
        columns.header_key_start, columns.header_key_size, columns.header_value_start, columns.header_value_size
    )
    header_first = as_column(columns.header_first)
    sizes = np.empty(columns.count, np.int64)
    plan = np.empty((3, columns.count), np.int64)
    count, row = kernels_encode.plan(data, records, header_first, headers, room, sizes, plan)
    if count < 0:
        raise ValueError(f"{kernels_encode.TEXTS[count]} (record {row})")
    firsts = [*plan[0, :count].tolist(), columns.count]
    for batch in range(count):
        out = np.empty(int(plan[1, batch]), np.uint8)
        first, last = firsts[batch], firsts[batch + 1]
        written = kernels_encode.write(data, records, header_first, headers, sizes, first, last, out)
        if written != len(out):
            raise ValueError("the columns changed while they were encoded")
        yield Payload(first, last, int(plan[2, batch]), memoryview(out))


def _table(*columns: Any) -> Any:
    return np.stack([as_column(column) for column in columns])
