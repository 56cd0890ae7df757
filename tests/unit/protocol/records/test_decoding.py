"""decode: what was built is found, wherever it lies and however it is compressed, by both twins."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.protocol.records.batches import (
    COLUMN_NAMES,
    built_batches,
    everything,
    expected,
    records_of,
    with_crc,
)
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL,
    RecordInput,
    build_batch,
    iter_headers,
    read_header,
    set_append_time,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import TwinName, decode, scan
from tidelog.protocol.records.decoding import RECORD_COLUMN_BYTES

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]

settled = settings(max_examples=80)


@settled
@given(batches=st.lists(built_batches, max_size=4), data=st.data())
def test_what_was_built_is_decoded(twin: TwinName, batches: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(batches)
    rest = data.draw(built_batches)
    log = whole + rest[: data.draw(st.integers(0, len(rest) - 1))]
    columns = decode(log, twin=twin)
    assert columns.consumed == len(whole)
    assert records_of(columns) == expected(whole)
    assert columns.count == len(expected(whole))
    found = list(iter_headers(whole))
    assert [columns.batches.header(row) for row in range(columns.batches.count)] == [header for _, header in found]
    assert columns.batches.position.tolist() == [position for position, _ in found]


@settled
@given(batches=st.lists(built_batches, max_size=3), cut=st.integers(0, 80))
def test_scan_finds_the_headers_that_decode_finds(twin: TwinName, batches: list[bytes], cut: int) -> None:
    data = b"".join(batches)
    data = data[: len(data) - cut]
    headers, expected_headers = scan(data, twin=twin), decode(data, twin=twin).batches
    assert [headers.header(row) for row in range(headers.count)] == [
        expected_headers.header(row) for row in range(expected_headers.count)
    ]
    assert headers.position.tolist() == expected_headers.position.tolist()


def test_scan_checks_the_crc_unless_it_is_told_not_to(twin: TwinName) -> None:
    batch = build_batch([RecordInput(b"k", b"v", 1)])
    batch[-1] ^= 1
    with pytest.raises(ProtocolError, match="CRC"):
        scan(batch, twin=twin)
    assert scan(batch, twin=twin, check_crc=False).count == 1


@settled
@given(batches=st.lists(built_batches, max_size=3))
def test_the_twins_agree_on_every_column(batches: list[bytes]) -> None:
    log = b"".join(batches)
    assert everything(decode(log, twin="native")) == everything(decode(log, twin="pure"))


@settled
@given(batches=st.lists(built_batches, min_size=1, max_size=3))
def test_positions_cover_the_records_without_a_gap(twin: TwinName, batches: list[bytes]) -> None:
    columns = decode(b"".join(batches), twin=twin)
    assert len(columns.header_first) == columns.count + 1
    for batch in range(columns.batches.count):
        first, last = columns.batches.first_record[batch], columns.batches.first_record[batch + 1]
        assert columns.batch.tolist()[first:last] == [batch] * (last - first)
        edges = [*columns.start.tolist()[first:last], columns.batches.payload_end[batch]]
        assert columns.end.tolist()[first:last] == edges[1:]
        assert edges[0] == columns.batches.payload_start[batch]
    for begin, end in pairwise(columns.header_first.tolist()):
        assert 0 <= begin <= end <= len(columns.header_key_start)


def test_more_records_than_go_over_at_once(twin: TwinName) -> None:
    """The pure twin moves rows to columns in portions; the numbers of headers count on."""
    inputs = [
        RecordInput(b"%d" % number, None, number, [("h", b"%d" % number)] * (number % 3)) for number in range(9000)
    ]
    portions = [inputs[:4090], inputs[4090:4100], inputs[4100:]]
    log = b"".join(bytes(build_batch(part, base_offset=part[0].timestamp)) for part in portions)
    assert records_of(decode(log, twin=twin)) == expected(log)


def test_a_bare_record_is_zero_copy(twin: TwinName) -> None:
    log = bytes(build_batch([RecordInput(b"key", b"value", 1)]))
    columns = decode(log, twin=twin)
    assert columns.data is log
    start = columns.value_start[0]
    assert log[start : start + columns.value_size[0]] == b"value"


@pytest.mark.parametrize("codec", PACKED)
def test_compressed_and_plain_batches_share_one_buffer(twin: TwinName, codec: Codec) -> None:
    plain = build_batch([RecordInput(b"k", b"plain", 1)])
    packed = build_batch([RecordInput(None, b"packed" * 1000, 2)], codec=codec, base_offset=1)
    columns = decode(bytes(plain + packed + plain), twin=twin)
    assert [record.value for record in records_of(columns)] == [b"plain", b"packed" * 1000, b"plain"]
    payload = bytes(plain[HEADER_SIZE:])
    assert bytes(columns.data).startswith(payload)
    assert bytes(columns.data).endswith(payload)


@pytest.mark.parametrize(
    "form",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: memoryview(bytearray(data)),
        lambda data: memoryview(data).cast("b"),
        lambda data: memoryview(b"..." + data)[3:],
    ],
)
def test_whatever_the_log_lies_in(twin: TwinName, form: Any) -> None:
    log = bytes(build_batch([RecordInput(b"key", b"value", 1, [("h", b"content")])] * 3))
    assert records_of(decode(form(log), twin=twin)) == expected(log)


def test_columns_are_flat_64_bit_numbers(twin: TwinName) -> None:
    columns = decode(build_batch([RecordInput(b"key", b"value", 1, [("h", b"v")])] * 2), twin=twin)
    fields = [getattr(columns, name) for name in COLUMN_NAMES]
    for column in (*fields, columns.batches.attributes, columns.batches.first_record):
        view = memoryview(column)
        assert (view.itemsize, view.ndim, view.c_contiguous) == (8, 1, True)
        assert view.format in ("q", "l")


def test_no_batches(twin: TwinName) -> None:
    for log in (b"", bytes(60)):
        columns = decode(log, twin=twin)
        assert (columns.count, columns.consumed, columns.batches.count) == (0, 0, 0)
        assert columns.header_first.tolist() == [0]
        assert columns.batches.first_record.tolist() == [0]


def test_append_time_is_the_batchs(twin: TwinName) -> None:
    batch = build_batch([RecordInput(None, b"v", 5), RecordInput(None, b"v", 99)])
    set_append_time(batch, read_header(batch), 77)
    columns = decode(batch, twin=twin)
    assert columns.timestamp.tolist() == [77, 77]
    assert columns.batches.attributes[0] & APPEND_TIME


def test_control_batches_are_decoded_and_told_apart(twin: TwinName) -> None:
    data = build_batch([RecordInput(b"k", b"v", 1)], attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0)
    marker = build_batch(
        [RecordInput(b"\x00\x00\x00\x01", bytes(6), 2)],
        attributes=TRANSACTIONAL | CONTROL,
        base_offset=1,
        producer_id=9,
    )
    columns = decode(bytes(data + marker), twin=twin)
    flags = [bool(columns.batches.attributes[batch] & CONTROL) for batch in columns.batch]
    assert flags == [False, True]
    assert columns.record(1).key == b"\x00\x00\x00\x01"


def test_times_count_from_a_delete_horizon(twin: TwinName) -> None:
    """KIP-534: the base timestamp is the horizon, the deltas are negative."""
    batch = build_batch([RecordInput(b"k", None, 5_000_000), RecordInput(b"k", None, 1000)])
    header = read_header(batch)._replace(attributes=DELETE_HORIZON)
    batch[:HEADER_SIZE] = HEADER.pack(*header)
    assert decode(with_crc(batch), twin=twin).timestamp.tolist() == [5_000_000, 1000]


def test_a_batch_that_was_emptied_keeps_its_row(twin: TwinName) -> None:
    batch = bytearray(build_batch([RecordInput(None, None, 0)] * 3)[:HEADER_SIZE])
    batch[:HEADER_SIZE] = HEADER.pack(*read_header(batch)._replace(batch_length=49, record_count=0))
    plain = bytes(build_batch([RecordInput(b"k", b"v", 1)], base_offset=3))
    columns = decode(with_crc(batch) + plain, twin=twin)
    assert columns.offset.tolist() == [3]
    assert columns.batches.first_record.tolist() == [0, 0, 1]
    assert columns.batch.tolist() == [1]
    assert columns.batches.last_offset_delta[0] == 2


@pytest.mark.parametrize("codec", Codec)
def test_a_wrong_crc_is_refused_unless_nobody_asks(twin: TwinName, codec: Codec) -> None:
    first = build_batch([RecordInput(b"k", b"v", 1)], codec=codec)
    second = bytearray(first)
    second[18] ^= 1
    with pytest.raises(ProtocolError, match=f"CRC of the batch at byte {len(first)}"):
        decode(bytes(first + second), twin=twin)
    assert decode(bytes(first + second), twin=twin, check_crc=False).count == 2


@pytest.mark.parametrize("codec", PACKED)
def test_decompression_is_bounded_over_the_whole_call(twin: TwinName, codec: Codec) -> None:
    batch = bytes(build_batch([RecordInput(None, bytes(100_000), 1)], codec=codec))
    cost = len(decode(batch, twin=twin).data) + RECORD_COLUMN_BYTES
    assert decode(batch * 3, twin=twin, limit_bytes=3 * cost).count == 3
    with pytest.raises(ProtocolError, match=f"more than {3 * cost - 1} bytes, columns included"):
        decode(batch * 3, twin=twin, limit_bytes=3 * cost - 1)
    with pytest.raises(ProtocolError, match=f"the batches before it took {2 * cost} of {2 * cost + 9} bytes"):
        decode(batch * 3, twin=twin, limit_bytes=2 * cost + 9)
    plain = bytes(build_batch([RecordInput(None, bytes(100_000), 1)]))
    assert decode(plain * 3, twin=twin, limit_bytes=0).count == 3


@pytest.mark.parametrize("codec", PACKED)
def test_headers_count_against_the_limit(twin: TwinName, codec: Codec) -> None:
    """Two bytes each when they are empty, and 32 in the columns."""
    inputs = [RecordInput(None, None, 1, [("", None)] * 20_000)]
    batch = bytes(build_batch(inputs, codec=codec))
    size = len(decode(batch, twin=twin).data) + RECORD_COLUMN_BYTES
    assert len(decode(batch, twin=twin, limit_bytes=size + 20_000 * 32).header_key_start) == 20_000
    with pytest.raises(ProtocolError, match="record headers"):
        decode(batch, twin=twin, limit_bytes=size + 10_000 * 32)
    assert decode(bytes(build_batch(inputs)), twin=twin, limit_bytes=0).count == 1


def test_a_record_beside_its_bytes(twin: TwinName) -> None:
    """A name that is not UTF-8 does not stop a reader; Java's replaces what it cannot read."""
    name = "naïve".encode("latin-1")
    batch = bytearray(build_batch([RecordInput(b"k", b"v", 1, [("x" * len(name), b"")])]))
    at = batch.index(b"x" * len(name))
    batch[at : at + len(name)] = name
    assert decode(with_crc(batch), twin=twin).record(0).headers == (("na\ufffdve", b""),)
