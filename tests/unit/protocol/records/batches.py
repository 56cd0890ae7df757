"""Batches for the tests of the decoder: right ones, damaged ones, and what the old decoder reads in them."""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from tidelog.protocol.batch import (
    APPEND_TIME,
    ATTRIBUTES_OFFSET,
    CONTROL,
    CRC_OFFSET,
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL,
    Record,
    RecordInput,
    build_batch,
    iter_headers,
    iter_records,
    read_header,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import Columns

INT64_MAX = 2**63 - 1
COLUMN_NAMES = [field.name for field in fields(Columns) if field.type == "Column"]

blobs = (
    st.none()
    | st.binary(max_size=40)
    | st.sampled_from([62, 63, 64, 65, 8190, 8192, 20_000]).map(lambda size: b"long" * (size // 4) + b"x" * (size % 4))
)
# From -1 to the greatest is one more than the difference of two in a batch can be.
timestamps = st.integers(-1, INT64_MAX - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)
record_inputs = st.builds(
    RecordInput,
    key=blobs,
    value=blobs,
    timestamp=timestamps,
    headers=st.lists(st.tuples(st.text(max_size=12), blobs), max_size=3).map(tuple),
)
record_lists = st.lists(record_inputs, min_size=1, max_size=8)
built_batches = st.builds(
    build_batch,
    record_lists,
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, INT64_MAX - 10),
    leader_epoch=st.integers(-1, 2**31 - 1),
    attributes=st.sampled_from((0, APPEND_TIME, TRANSACTIONAL, TRANSACTIONAL | CONTROL)),
    producer_id=st.integers(-1, INT64_MAX),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
).map(bytes)


def with_crc(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return bytes(batch)


def with_records(records: bytes, count: int, **changed: int) -> bytes:
    """A batch whose header is in order, around records that need not be."""
    batch = build_batch([RecordInput(None, None, 0)] * max(count, 1))[:HEADER_SIZE] + records
    header = read_header(batch)._replace(batch_length=len(batch) - 12, record_count=count, **changed)
    batch[:HEADER_SIZE] = HEADER.pack(*header)
    return with_crc(batch)


def expected(data: bytes) -> list[Record]:
    """What the decoder of the control plane reads."""
    return [
        record
        for position, header in iter_headers(data)
        for record in iter_records(data[position : position + header.size], header)
    ]


def records_of(columns: Columns) -> list[Record]:
    return [columns.record(row) for row in range(columns.count)]


def everything(columns: Columns) -> dict[str, Any]:
    """All that decode tells, in a form that can be compared."""
    batches = columns.batches
    found: dict[str, Any] = {name: getattr(columns, name).tolist() for name in COLUMN_NAMES}
    found["headers"] = [batches.header(row) for row in range(batches.count)]
    for name in ("position", "payload_start", "payload_end", "first_record"):
        found[f"batches.{name}"] = getattr(batches, name).tolist()
    return found | {"consumed": columns.consumed, "count": columns.count, "data": bytes(columns.data)}
