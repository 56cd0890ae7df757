"""encode: the bytes of build_batch where one batch is enough, and the same records after any splitting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from tests.unit.protocol.records.batches import INT64_MAX, built_batches, expected, record_lists, records_of
from tidelog.protocol.batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    RecordInput,
    build_batch,
    crc_is_valid,
    read_header,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import Columns, TwinName, decode, encode

settled = settings(max_examples=80)


def columns_of(records: Iterable[RecordInput], twin: TwinName, **fields: Any) -> Columns:
    return decode(bytes(build_batch(records, **fields)), twin=twin)


def changed(columns: Columns, twin: TwinName, **numbers: list[int]) -> Columns:
    """The same with other numbers in some columns."""
    from tidelog.protocol.records.twins import module

    return replace(columns, **{name: module("decode", twin).column(values) for name, values in numbers.items()})


@settled
@given(
    records=record_lists,
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, INT64_MAX - 10),
    leader_epoch=st.integers(-1, 2**31 - 1),
    attributes=st.sampled_from((0, TRANSACTIONAL, TRANSACTIONAL | CONTROL)),
    producer_id=st.integers(-1, INT64_MAX),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
)
def test_one_batch_has_the_bytes_of_build_batch(
    twin: TwinName, records: list[RecordInput], base_offset: int, codec: Codec, **fields: int
) -> None:
    columns = columns_of(records, twin, base_offset=base_offset)
    (batch,) = encode(columns, codec=codec, **fields)
    assert batch == build_batch(records, base_offset=base_offset, codec=codec, **fields)


@settled
@given(
    batches=st.lists(built_batches, min_size=1, max_size=3), codec=st.sampled_from(Codec), size=st.integers(0, 40_000)
)
def test_decoded_and_encoded_are_the_same_records(
    twin: TwinName, batches: list[bytes], codec: Codec, size: int
) -> None:
    for batch in batches:
        columns = decode(batch, twin=twin)
        again = encode(columns, batch_bytes=size, codec=codec, attributes=read_header(batch).attributes & CONTROL)
        assert expected(b"".join(map(bytes, again))) == expected(batch)
        assert records_of(decode(b"".join(map(bytes, again)), twin=twin)) == expected(batch)
        for one in again:
            header = read_header(one)
            assert crc_is_valid(one, header)
            plain = HEADER_SIZE + len(decode(one, twin=twin).data) - (HEADER_SIZE if codec is Codec.NONE else 0)
            assert plain <= size or header.record_count == 1


def test_no_batch_is_smaller_than_it_must_be(twin: TwinName) -> None:
    """A batch ends only where the next record would not fit."""
    columns = columns_of([RecordInput(b"k", bytes(100), number) for number in range(1000)], twin)
    batches = encode(columns, batch_bytes=2000)
    sizes = [len(batch) for batch in batches]
    record = len(encode(columns, batch_bytes=0)[500]) - HEADER_SIZE
    assert all(2000 - record - 3 < size <= 2000 for size in sizes[:-1])
    assert sum(read_header(batch).record_count for batch in batches) == 1000


def test_the_twins_split_alike() -> None:
    inputs = [RecordInput(b"%d" % number, bytes(number % 90), number * 7919 % 10_000) for number in range(3000)]
    for size in (0, 100, 1000, 16_384):
        made = [encode(columns_of(inputs, twin), batch_bytes=size) for twin in ("pure", "native")]  # type: ignore[arg-type]
        assert made[0] == made[1]


def test_gaps_between_offsets_stay(twin: TwinName) -> None:
    columns = changed(columns_of([RecordInput(b"k", b"v", 1)] * 3, twin), twin, offset=[5, 9, 2**40])
    batches = encode(columns)
    assert [read_header(batch).base_offset for batch in batches] == [5, 2**40]  # a delta has 32 bits
    assert [record.offset for batch in batches for record in expected(bytes(batch))] == [5, 9, 2**40]
    assert read_header(batches[0]).last_offset_delta == 4


def test_times_too_far_from_each_other_part_the_batch(twin: TwinName) -> None:
    times = [-(2**63), INT64_MAX, -(2**63), 0, -1]
    columns = changed(columns_of([RecordInput(b"k", b"v", 1)] * 5, twin), twin, timestamp=times)
    batches = encode(columns)
    assert [record.timestamp for batch in batches for record in expected(bytes(batch))] == times
    for batch in batches:
        assert read_header(batch).max_timestamp == max(record.timestamp for record in expected(bytes(batch)))
    assert len(batches) == 4


def test_sequences_count_on(twin: TwinName) -> None:
    columns = columns_of([RecordInput(b"k", b"v", 1)] * 10, twin)
    batches = encode(columns, batch_bytes=90, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    headers = [read_header(batch) for batch in batches]
    assert len(headers) > 2
    sequence = 2**31 - 2
    for header in headers:
        assert header.base_sequence == sequence
        sequence = (sequence + header.record_count) & 0x7FFFFFFF


def test_nothing_to_encode(twin: TwinName) -> None:
    assert encode(decode(b"", twin=twin)) == []


def test_control_records_do_not_become_data(twin: TwinName) -> None:
    columns = columns_of([RecordInput(bytes(4), bytes(6), 1)], twin, attributes=CONTROL)
    with pytest.raises(ValueError, match="control records"):
        encode(columns)
    assert read_header(encode(columns, attributes=CONTROL)[0]).is_control
    with pytest.raises(ValueError, match="given as codec"):
        encode(columns, attributes=CONTROL | Codec.ZSTD)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"offset": [1, 1]}, "ascend|follows"),
        ({"offset": [1, 0]}, "ascend|follows"),
        ({"key_start": [0, 10**6]}, "outside"),
        ({"key_start": [-1, 0]}, "outside"),
        ({"value_size": [0, 10**6]}, "outside"),
        ({"value_size": [2**62, 1]}, "outside"),
        ({"header_key_size": [-1, 1]}, "no name"),
        ({"header_value_start": [0, -5]}, "outside"),
    ],
)
def test_columns_that_somebody_has_spoiled(twin: TwinName, numbers: dict[str, list[int]], reason: str) -> None:
    """Native code must not read where they point."""
    columns = columns_of([RecordInput(b"key", b"value", 1, [("h", b"content")])] * 2, twin)
    with pytest.raises(ValueError, match=reason):
        encode(changed(columns, twin, **numbers))


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_reads_it(twin: TwinName, codec: Codec) -> None:
    inputs = [RecordInput(b"%d" % number, bytes(50), number, [("h", b"%d" % number)]) for number in range(200)]
    log = b"".join(map(bytes, encode(columns_of(inputs, twin), batch_bytes=1000, codec=codec)))
    found = []
    memory = MemoryRecords(log)
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(record.key, record.value, record.timestamp, list(record.headers)) for record in batch]
    assert found == [(one.key, one.value, one.timestamp, list(one.headers)) for one in inputs]
