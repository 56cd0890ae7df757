"""Record batches: what is built is read back, other builders make the same bytes, and any bytes are records or a
ProtocolError."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import (
    APPEND_TIME,
    ATTRIBUTES_OFFSET,
    CONTROL,
    CRC_OFFSET,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    RecordInput,
    assign_offsets,
    build_batch,
    crc_is_valid,
    increment_sequence,
    iter_headers,
    iter_records,
    read_header,
    read_varint,
    set_append_time,
    write_varint,
)
from tidelog.protocol.compression import Codec

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

settled = settings(max_examples=60)

blobs = st.none() | st.binary(max_size=40) | st.integers(60, 20_000).map(lambda size: b"long" * (size // 4))
names = st.text(max_size=12)
timestamps = st.integers(-1, INT64_MAX - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)
record_inputs = st.builds(
    RecordInput,
    key=blobs,
    value=blobs,
    timestamp=timestamps,
    headers=st.lists(st.tuples(names, blobs), max_size=3).map(tuple),
)
record_lists = st.lists(record_inputs, min_size=1, max_size=8)


def with_crc(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return bytes(batch)


def with_records(records: bytes, count: int, **fields: int) -> bytes:
    """A batch whose header is in order, around records that need not be."""
    batch = build_batch([RecordInput(None, None, 0)] * max(count, 1))[:HEADER_SIZE] + records
    header = read_header(batch)._replace(batch_length=len(batch) - 12, record_count=count, **fields)
    batch[:HEADER_SIZE] = struct.pack(">qiibIhiqqqhii", *header)
    return with_crc(batch)


@settled
@given(
    records=record_lists,
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, INT64_MAX - 10),
    leader_epoch=st.integers(-1, INT32_MAX),
    attributes=st.sampled_from((0, TRANSACTIONAL, TRANSACTIONAL | CONTROL)),
    producer_id=st.integers(-1, INT64_MAX),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, INT32_MAX),
)
def test_what_was_built_is_read_back(
    records: list[RecordInput],
    codec: Codec,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    batch = build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    header = read_header(batch)
    assert header == BatchHeader(
        base_offset=base_offset,
        batch_length=len(batch) - 12,
        leader_epoch=leader_epoch,
        magic=2,
        crc=crc32c(bytes(batch[21:])),
        attributes=attributes | codec,
        last_offset_delta=len(records) - 1,
        base_timestamp=records[0].timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    assert (header.size, header.next_offset, header.codec) == (len(batch), base_offset + len(records), codec)
    assert crc_is_valid(batch, header)
    assert list(iter_records(batch)) == [
        Record(base_offset + delta, record.timestamp, record.key, record.value, tuple(record.headers))
        for delta, record in enumerate(records)
    ]


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_records_own_their_bytes_whatever_the_batch_lies_in(view: type) -> None:
    batch = view(bytes(build_batch([RecordInput(b"key", b"value", 1, [("h", b"content")])])))
    (record,) = iter_records(batch)
    assert [type(part) for part in (record.key, record.value, record.headers[0][1])] == [bytes, bytes, bytes]


@settled
@given(records=record_lists, offset=st.integers(0, INT64_MAX), epoch=st.integers(0, INT32_MAX))
def test_offset_and_epoch_are_patched_outside_the_crc(records: list[RecordInput], offset: int, epoch: int) -> None:
    batch = build_batch(records)
    before = read_header(batch)
    assign_offsets(batch, offset, epoch)
    after = read_header(batch)
    assert after == before._replace(base_offset=offset, leader_epoch=epoch)
    assert crc_is_valid(batch, after)


@settled
@given(records=record_lists, codec=st.sampled_from(Codec), now_ms=st.integers(0, INT64_MAX))
def test_append_time_overrides_what_the_records_say(records: list[RecordInput], codec: Codec, now_ms: int) -> None:
    batch = build_batch(records, codec=codec)
    before = read_header(batch)
    after = set_append_time(batch, before, now_ms)
    assert after == read_header(batch)
    assert after == before._replace(attributes=codec | APPEND_TIME, max_timestamp=now_ms, crc=after.crc)
    assert crc_is_valid(batch, after)
    assert {record.timestamp for record in iter_records(batch)} == {now_ms}


def test_sequences_wrap_to_zero() -> None:
    assert increment_sequence(INT32_MAX, 1) == 0
    header = read_header(build_batch([RecordInput(None, None)] * 3, base_sequence=INT32_MAX - 1))
    assert header.last_sequence == 0


def test_a_batch_without_records_is_our_bug() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


# varints


@settled
@given(st.integers(-(2**63), INT64_MAX))
@example(0)
@example(-1)
@example(-(2**63))
@example(INT64_MAX)
def test_varints_are_zigzag_in_groups_of_seven_bits(value: int) -> None:
    out = bytearray(b"..")
    write_varint(out, value)
    plain = value * 2 if value >= 0 else -value * 2 - 1
    groups = [(plain >> shift) & 0x7F for shift in range(0, max(plain.bit_length(), 1), 7)]
    assert bytes(out[2:]) == bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])
    assert read_varint(out, 2) == (value, len(out))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 10 + b"\x01", b"\xff" * 200])
def test_a_varint_without_end_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_varint(data, 0)


# bytes that are no batch


@settled
@given(st.binary(max_size=200))
@example(b"")
@example(bytes(61))
@example(bytes(100))
def test_any_bytes_are_records_or_an_error(data: bytes) -> None:
    try:
        found = list(iter_records(data))
    except ProtocolError:
        return
    assert len(found) == read_header(data).record_count


@settled
@given(st.data(), record_lists, st.sampled_from(Codec))
def test_any_damage_behind_a_right_crc_gives_records_or_an_error(
    data: st.DataObject, records: list[RecordInput], codec: Codec
) -> None:
    """A client computes its CRC after it has made the mistake."""
    batch = build_batch(records, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(ATTRIBUTES_OFFSET, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    damaged = with_crc(batch)
    header = read_header(damaged)
    try:
        found = list(iter_records(damaged, limit_bytes=1 << 20))
    except ProtocolError:
        return
    for record in found:
        assert header.base_offset <= record.offset <= header.last_offset
        assert -(2**63) <= record.timestamp <= INT64_MAX
    # What was read can be written: recompression does so.
    if found:
        build_batch([RecordInput(r.key, r.value, r.timestamp, r.headers) for r in found])


@settled
@given(st.data(), record_lists, st.sampled_from(Codec))
def test_a_batch_that_was_cut_is_an_error(data: st.DataObject, records: list[RecordInput], codec: Codec) -> None:
    batch = bytes(build_batch(records, codec=codec))
    cut = data.draw(st.integers(0, len(batch) - 1))
    with pytest.raises(ProtocolError):
        list(iter_records(batch[:cut]))
    if cut >= HEADER_SIZE:
        # The same with a length that says so: the records themselves are short.
        header = bytearray(batch[:cut])
        struct.pack_into(">i", header, 8, cut - 12)
        with pytest.raises(ProtocolError):
            list(iter_records(with_crc(header)))


@pytest.mark.parametrize(
    ("records", "count", "reason"),
    [
        pytest.param(b"", 1, "runs over", id="no record"),
        pytest.param(b"\x01", 1, "runs over", id="negative length"),
        pytest.param(b"\xfe\xff\xff\xff\x0f", 1, "runs over", id="two gigabytes"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x00", 2, "over the end", id="one record fewer than counted"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 1, "left over", id="one more than counted"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x00", -1, "left over", id="negative count"),
        pytest.param(b"\x0c\x00\x00\x00\x03\x01\x00", 1, "length of -2", id="a key of length -2"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x20\x00", 1, "field runs over", id="a value longer than its record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x7e", 1, "claims 63 headers", id="more headers than bytes"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", 1, "claims -1 headers", id="negative header count"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, "no name", id="a header without a name"),
        pytest.param(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1, "not UTF-8", id="a header named in Latin-1"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, "does not fit", id="a record longer than its fields"),
        pytest.param(b"\x0c\x00\x00\x02\x01\x01\x00", 1, "offset", id="an offset behind the last"),
        pytest.param(b"\x0c\x00\x00\x01\x01\x01\x00", 1, "offset", id="an offset before the first"),
    ],
)
def test_records_that_are_none(records: bytes, count: int, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        list(iter_records(with_records(records, count)))


def test_a_timestamp_that_no_clock_can_show_is_refused() -> None:
    """Written again it would not fit the header: a compression.type that differs must not find that out."""
    record = b"\x0c\x00\x02\x00\x01\x01\x00"
    assert [r.timestamp for r in iter_records(with_records(record, 1, base_timestamp=5))] == [6]
    with pytest.raises(ProtocolError, match="timestamp"):
        list(iter_records(with_records(record, 1, base_timestamp=INT64_MAX)))


def test_an_older_format_is_not_read_as_if_it_were_this_one() -> None:
    batch = bytearray(build_batch([RecordInput(None, b"v", 1)]))
    batch[16] = 1
    with pytest.raises(ProtocolError, match="format 1"):
        list(iter_records(batch))


@settled
@given(st.lists(record_lists, max_size=4), st.data())
def test_headers_of_every_whole_batch_and_nothing_of_a_cut_one(
    lists: list[list[RecordInput]], data: st.DataObject
) -> None:
    batches = [bytes(build_batch(records)) for records in lists]
    joined = b"".join(batches)
    cut = data.draw(st.integers(0, len(joined)))
    found = list(iter_headers(joined[:cut]))
    ends = [sum(map(len, batches[: number + 1])) for number in range(len(batches))]
    assert [position + header.size for position, header in found] == [end for end in ends if end <= cut]


@settled
@given(st.binary(max_size=200))
def test_headers_of_any_bytes_end(data: bytes) -> None:
    try:
        found = list(iter_headers(data))
    except ProtocolError:
        return
    assert sum(header.size for _, header in found) <= len(data)


# other builders


plain_lists = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=100),
        st.none() | st.binary(max_size=100),
        st.integers(0, 2**50),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


@settled
@given(plain_lists, st.integers(-1, 2**40), st.booleans())
def test_kafka_python_builds_the_same_bytes(records: list[tuple], producer_id: int, transactional: bool) -> None:  # type: ignore[type-arg]
    epoch, sequence = (3, 7) if producer_id >= 0 else (-1, -1)
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for offset, (key, value, timestamp, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, headers)
    ours = build_batch(
        [RecordInput(key, value, timestamp, headers) for key, value, timestamp, headers in records],
        attributes=TRANSACTIONAL if transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        leader_epoch=read_header(builder.build()).leader_epoch,
    )
    assert bytes(ours) == bytes(builder.build())


@settled
@given(plain_lists)
def test_aiokafka_builds_the_same_bytes(records: list[tuple]) -> None:  # type: ignore[type-arg]
    builder = AioBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, (key, value, timestamp, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, headers)
    theirs = bytes(builder.build())
    ours = build_batch(
        [RecordInput(key, value, timestamp, headers) for key, value, timestamp, headers in records],
        leader_epoch=read_header(theirs).leader_epoch,
    )
    assert bytes(ours) == theirs
