"""What a batch must satisfy, and what the topic's configuration makes of it. Codes compared with Apache Kafka 4.3.1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.log.config import LogConfig
from tidelog.log.errors import LogError
from tidelog.protocol.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    RecordInput,
    build_batch,
    crc_is_valid,
    iter_records,
    read_header,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.validate import prepare_batch

NOW_MS = 1_700_000_000_000
PLAIN = LogConfig()
RECORDS = [RecordInput(b"k1", b"v1", NOW_MS, [("h", b"x")]), RecordInput(b"k2", None, NOW_MS + 5)]


def view(batch: bytes | bytearray) -> memoryview:
    """As it lies in the read buffer: writable, and somebody else's."""
    return memoryview(bytearray(batch))


def with_header(batch: bytes | bytearray, **fields: int) -> memoryview:
    out = bytearray(batch)
    out[:HEADER_SIZE] = HEADER.pack(*read_header(out)._replace(**fields))
    out[17:21] = crc32c(bytes(out[21:])).to_bytes(4, "big")
    return memoryview(out)


def refused(batch: memoryview, config: LogConfig = PLAIN) -> ErrorCode:
    with pytest.raises(LogError) as caught:
        prepare_batch(batch, config, NOW_MS)
    assert str(caught.value)
    return caught.value.error_code


def prepared(batch: memoryview, config: LogConfig = PLAIN) -> tuple[bytes, BatchHeader]:
    data, header = prepare_batch(batch, config, NOW_MS)
    assert header == read_header(data)
    assert crc_is_valid(data, header)
    assert header.size == len(data)
    return bytes(data), header


def contents(batch: bytes) -> list[Any]:
    return [(r.key, r.value, r.timestamp, r.headers) for r in iter_records(batch)]


# the fast path


@pytest.mark.parametrize("codec", Codec)
def test_a_good_batch_is_taken_where_it_lies(codec: Codec) -> None:
    batch = view(build_batch(RECORDS, codec=codec))
    data, header = prepare_batch(batch, PLAIN, NOW_MS)
    assert data is batch
    assert header.record_count == 2


@settings(max_examples=200)
@given(st.data())
def test_any_bytes_are_taken_or_refused_with_a_code(data: st.DataObject) -> None:
    batch = bytearray(build_batch(RECORDS, codec=data.draw(st.sampled_from(Codec))))
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    raw = data.draw(st.sampled_from((bytes(batch), bytes(batch[: data.draw(st.integers(0, len(batch)))]))))
    if len(raw) >= HEADER_SIZE and data.draw(st.booleans()):
        raw = bytes(with_header(raw))
    config = data.draw(
        st.sampled_from(
            (
                PLAIN,
                LogConfig(compression_type="zstd"),
                LogConfig(cleanup_policy=frozenset({"compact"})),
                LogConfig(message_timestamp_type="LogAppendTime", compression_type="uncompressed"),
            )
        )
    )
    try:
        taken, header = prepare_batch(view(raw), config, NOW_MS)
    except LogError:
        return
    assert len(taken) == header.size and crc_is_valid(taken, header)
    assert header.last_offset_delta == header.record_count - 1 >= 0


# refusals


BATCH = bytes(build_batch(RECORDS))


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        pytest.param(view(b""), ErrorCode.INVALID_RECORD, id="nothing"),
        pytest.param(view(BATCH[:60]), ErrorCode.CORRUPT_MESSAGE, id="less than a header"),
        pytest.param(view(BATCH[:-1]), ErrorCode.CORRUPT_MESSAGE, id="cut"),
        pytest.param(view(BATCH + b"x"), ErrorCode.INVALID_RECORD, id="something behind it"),
        pytest.param(view(BATCH + BATCH), ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(view(BATCH[:-1] + b"?"), ErrorCode.CORRUPT_MESSAGE, id="wrong CRC"),
        pytest.param(with_header(BATCH, magic=1), ErrorCode.INVALID_RECORD, id="older format"),
        pytest.param(with_header(BATCH, last_offset_delta=9), ErrorCode.INVALID_RECORD, id="offsets with gaps"),
        pytest.param(
            with_header(BATCH, record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD, id="no records"
        ),
        pytest.param(with_header(BATCH, attributes=CONTROL), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(with_header(BATCH, attributes=7), ErrorCode.INVALID_RECORD, id="unknown codec"),
        pytest.param(with_header(BATCH, producer_id=5), ErrorCode.INVALID_RECORD, id="producer without sequence"),
        pytest.param(with_header(BATCH, max_timestamp=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP, id="future"),
    ],
)
def test_refusals(batch: memoryview, code: ErrorCode) -> None:
    before = bytes(batch)
    assert refused(batch) == code
    assert bytes(batch) == before, "a refused batch is left as it was"


def test_size_is_bounded_by_the_topic_and_by_a_segment() -> None:
    size = len(BATCH)
    assert prepared(view(BATCH), LogConfig(max_message_bytes=size, segment_bytes=size))[0] == BATCH
    assert refused(view(BATCH), LogConfig(max_message_bytes=size - 1)) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(view(BATCH), LogConfig(segment_bytes=size - 1)) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_have_a_range_but_no_timestamp_is_none() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)

    def at(timestamp: int) -> memoryview:
        return view(build_batch([RecordInput(None, b"v", timestamp)]))

    for timestamp in (NOW_MS - 1000, NOW_MS, NOW_MS + 1000, -1):
        prepared(at(timestamp), config)
    for timestamp in (NOW_MS - 1001, NOW_MS + 1001, 0):
        assert refused(at(timestamp), config) == ErrorCode.INVALID_TIMESTAMP
    prepared(at(0), replace(config, message_timestamp_type="LogAppendTime"))


# time of the broker


@pytest.mark.parametrize("codec", Codec)
def test_append_time_stamps_the_batch_in_place(codec: Codec) -> None:
    batch = view(build_batch(RECORDS, codec=codec))
    data, header = prepare_batch(batch, LogConfig(message_timestamp_type="LogAppendTime"), NOW_MS)
    assert data is batch
    assert (header.is_append_time, header.max_timestamp) == (True, NOW_MS)
    assert {
        r.timestamp for r in iter_records(prepared(batch, LogConfig(message_timestamp_type="LogAppendTime"))[0])
    } == {NOW_MS}


def test_a_client_does_not_decide_whose_time_it_is() -> None:
    """Its bit would make every reader take the batch's largest timestamp for all of its records."""
    data, header = prepared(with_header(BATCH, attributes=APPEND_TIME))
    assert not header.is_append_time
    assert data == BATCH


# other compression


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_another_compression_type_rebuilds_the_batch_and_the_same_one_does_not(codec: Codec, wanted: str) -> None:
    batch = view(build_batch(RECORDS, codec=codec, producer_id=9, producer_epoch=2, base_sequence=7))
    data, header = prepare_batch(batch, LogConfig(compression_type=wanted), NOW_MS)
    kept = codec.name.lower() == wanted or (codec is Codec.NONE and wanted == "uncompressed")
    assert (data is batch) == kept
    assert contents(bytes(data)) == contents(bytes(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 7)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 5)
    assert Codec(header.codec).name.lower() == wanted.replace("uncompressed", "none")


def test_a_rebuilt_batch_keeps_that_it_is_transactional_and_nothing_else_of_the_attributes() -> None:
    odd = with_header(BATCH, attributes=DELETE_HORIZON | TRANSACTIONAL | APPEND_TIME, max_timestamp=NOW_MS)
    _, header = prepared(odd, LogConfig(compression_type="zstd"))
    assert header.attributes == Codec.ZSTD | TRANSACTIONAL


def test_a_batch_that_becomes_too_large_is_refused() -> None:
    batch = view(build_batch([RecordInput(b"k", bytes(50_000), NOW_MS)], codec=Codec.GZIP))
    config = LogConfig(compression_type="uncompressed", max_message_bytes=5_000)
    assert len(batch) < 5_000
    assert refused(batch, config) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "config", [LogConfig(compression_type="zstd"), LogConfig(cleanup_policy=frozenset({"compact"}))]
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_records_that_are_none_are_refused_for_good(codec: Codec, config: LogConfig) -> None:
    """Not as a corrupt message, which a client would send again and again."""
    garbage = BATCH[:HEADER_SIZE] + b"garbage" * 3
    batch = with_header(garbage, batch_length=len(garbage) - 12, attributes=int(codec))
    assert refused(batch, config) == ErrorCode.INVALID_RECORD


def test_a_bomb_is_refused() -> None:
    bomb = view(build_batch([RecordInput(b"k", bytes(100 << 20), NOW_MS)], codec=Codec.ZSTD))
    assert len(bomb) < 20_000
    for config in (LogConfig(compression_type="gzip"), LogConfig(cleanup_policy=frozenset({"compact"}))):
        assert refused(bomb, config) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "config", [LogConfig(compression_type="zstd"), LogConfig(cleanup_policy=frozenset({"compact"}))]
)
def test_more_records_than_can_be_looked_at_are_refused_unseen(config: LogConfig) -> None:
    batch = with_header(BATCH, record_count=250_001, last_offset_delta=250_000)
    assert refused(batch, config) == ErrorCode.INVALID_RECORD
    assert prepared(batch, PLAIN)[1].record_count == 250_001


def test_an_absurd_timestamp_within_is_the_consumers_as_on_other_topics() -> None:
    batch = with_header(BATCH, base_timestamp=2**63 - 1, max_timestamp=NOW_MS)
    assert prepared(batch, LogConfig(compression_type="zstd"))[1].base_timestamp == 2**63 - 1


# keys


def test_a_compacted_topic_wants_keys() -> None:
    compacted = LogConfig(cleanup_policy=frozenset({"compact", "delete"}))
    prepared(view(BATCH), compacted)
    for codec in Codec:
        keyless = view(build_batch([*RECORDS, RecordInput(None, b"v", NOW_MS)], codec=codec))
        assert refused(keyless, compacted) == ErrorCode.INVALID_RECORD
        prepared(keyless)
