"""The decoder's loops as numba compiles them: arrays are made here, faults become errors here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from tidelog.protocol.records import kernels_crc, kernels_scan, kernels_walk, pure_decode
from tidelog.protocol.records.columns import BATCH_FIELDS, Batches
from tidelog.protocol.records.compiling import as_bytes
from tidelog.protocol.records.faults import TOO_MANY_HEADERS, fault
from tidelog.protocol.records.machine import HAS_CRC

BATCH: Final = (
    "base_offset",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "record_count",
    "payload_start",
    "payload_end",
)
FIELDS: Final = (
    "offset",
    "timestamp",
    "batch",
    "start",
    "end",
    "key_start",
    "key_size",
    "value_start",
    "value_size",
)
_CRC_BYTES_MAX: Final = 8192
_HEADER_FIELDS: Final = ("header_key_start", "header_key_size", "header_value_start", "header_value_size")


def column(values: Iterable[int]) -> Any:
    return np.array(values, np.int64)


def scan(view: memoryview) -> tuple[int, Batches]:
    """(bytes in whole batches, their headers)."""
    data = as_bytes(view)
    count, consumed, wrong = kernels_scan.count_batches(data)
    if wrong < 0:
        raise fault(wrong, f"at byte {consumed}")
    table = np.empty((len(BATCH_FIELDS), count), np.int64)
    wrong, position = kernels_scan.read_batches(data, table)
    if wrong < 0:
        raise fault(wrong, f"at byte {position}")
    return consumed, _batches(table)


def _batches(table: Any) -> Batches:
    columns = {name: table[row] for row, name in enumerate(BATCH_FIELDS)}
    first_record = np.zeros(table.shape[1] + 1, np.int64)
    np.cumsum(columns["record_count"], out=first_record[1:])
    return Batches(**columns, first_record=first_record)


def wrong_crc(view: memoryview, batches: Batches) -> int:
    """The package is three times as fast on a long batch, but takes most of a microsecond to be called."""
    if not HAS_CRC or len(view) > _CRC_BYTES_MAX * batches.count:
        return pure_decode.wrong_crc(view, batches)
    columns = (batches.position, batches.batch_length, batches.crc)
    return int(kernels_crc.wrong_crc(as_bytes(view), *columns))


def select(batches: Batches, rows: Sequence[int]) -> Batches:
    """Only these, in their order."""
    chosen = np.array(rows, np.int64)
    return _batches(np.stack([getattr(batches, name)[chosen] for name in BATCH_FIELDS]))


def walk(view: memoryview, batches: Batches, headers_max: int) -> dict[str, Any]:
    """The columns of all records; view holds them where the batches' payload columns say."""
    data = as_bytes(view)
    table = np.stack([getattr(batches, name) for name in BATCH])
    count = int(batches.first_record[batches.count])
    # One row more than the fields: where a record's headers begin.
    records = np.empty((len(FIELDS) + 1, count), np.int64)
    header_first = np.empty(count + 1, np.int64)
    wrong, row = kernels_walk.walk_records(data, table, records, header_first)
    if wrong < 0:
        raise fault(wrong, f"record {row}")
    found = {name: records[row] for row, name in enumerate(FIELDS)}
    if header_first[count] > headers_max:
        raise fault(TOO_MANY_HEADERS, f"{header_first[count]} headers")
    found["header_first"] = header_first
    headers = np.empty((len(_HEADER_FIELDS), int(header_first[count])), np.int64)
    if headers.shape[1]:
        wrong, row = kernels_walk.walk_headers(data, records[len(FIELDS)], found["end"], header_first, headers)
        if wrong < 0:
            raise fault(wrong, f"record {row}")
    return found | {name: headers[row] for row, name in enumerate(_HEADER_FIELDS)}


def ends(lengths: Iterable[int]) -> Any:
    """0 and the sum of the lengths up to each."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def places(bounds: memoryview, shift: int, nulls: Iterable[int]) -> tuple[Any, Any]:
    """(starts, sizes) of values that lie between bounds, moved by shift."""
    edges = np.frombuffer(bounds, np.int64)
    sizes = np.diff(edges)
    sizes[np.array(nulls, np.int64)] = -1
    return edges[:-1] + shift, sizes
