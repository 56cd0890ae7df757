"""Any bytes are a message or a ProtocolError: no other exception, and no more memory than the bytes can pay for."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import strategies as st
from msgspec import Struct

from tests.unit.protocol.catalog import CATALOG, Entry, Shape, for_examples, messages
from tests.unit.protocol.reference import Reference
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.codec import UnsupportedVersion, decode, decode_from, encode
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.source import write_uvarint

# Counts and lengths that no honest peer sends, in the fixed and in the compact form.
FORGED = (
    b"\x7f\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 6,
)
# A struct and its list slot cost some 200 bytes and need at least one byte of input; the rest is slack for the parser.
MEMORY_BYTES_PER_INPUT_BYTE = 400
MEMORY_BYTES_SLACK = 20_000


def parses_or_refuses(shape: Shape, version: int, data: bytes) -> None:
    with suppress(ProtocolError):
        decode(shape, version, data)


def is_flexible(entry: Entry) -> bool:
    return entry.schema.flexible.has(entry.versions[-1])


@contextmanager
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("entry", CATALOG, ids=repr)
def test_any_bytes_parse_or_raise(entry: Entry) -> None:
    versions = st.sampled_from(entry.versions)
    drawn = st.tuples(versions, st.binary(max_size=64))
    for_examples(drawn, 10, lambda pair: parses_or_refuses(entry.shape, *pair))


@pytest.mark.parametrize("entry", CATALOG, ids=repr)
def test_a_message_cut_anywhere_is_refused(entry: Entry) -> None:
    for version in {entry.versions[0], entry.versions[-1]}:

        def check(message: Struct, version: int = version) -> None:
            data = encode(message, version)
            cuts = range(len(data)) if len(data) < 60 else random.Random(len(data)).sample(range(len(data)), 60)
            for cut in cuts:
                with pytest.raises(ProtocolError):
                    decode(entry.shape, version, data[:cut])

        for_examples(messages(entry, version), 2, check)


@pytest.mark.parametrize("entry", [entry for entry in CATALOG if is_flexible(entry)], ids=repr)
def test_unknown_tags_on_every_struct_are_skipped(entry: Entry) -> None:
    version = entry.versions[-1]
    unknown = Reference(entry, version, {9999: b"abc", 100_000: b"", 2**31 - 1: b"x" * 200})

    def check(message: Struct) -> None:
        assert decode(entry.shape, version, unknown.encode(message)) == message

    for_examples(messages(entry, version), 2, check)


@pytest.mark.parametrize("entry", CATALOG, ids=repr)
def test_forged_lengths_cost_no_memory(entry: Entry) -> None:
    for version in {entry.versions[0], entry.versions[-1]}:

        def check(message: Struct, version: int = version) -> None:
            data = encode(message, version)
            parses_or_refuses(entry.shape, version, data)  # compiled before memory is counted
            with traced_memory():
                for attack in forgeries(data):
                    assert memory_bytes_peak(entry.shape, version, attack) < memory_bytes_limit(attack)

        for_examples(messages(entry, version), 2, check)


def forgeries(data: bytes) -> list[bytes]:
    rng = random.Random(len(data))
    places = range(len(data)) if len(data) < 24 else rng.sample(range(len(data)), 24)
    forged = [(place, rng.choice(FORGED)) for place in places]
    return [data[:place] + lie + data[place + len(lie) :] for place, lie in forged]


def memory_bytes_peak(shape: Shape, version: int, data: bytes) -> int:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    parses_or_refuses(shape, version, data)
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


def memory_bytes_limit(data: bytes) -> int:
    return MEMORY_BYTES_SLACK + MEMORY_BYTES_PER_INPUT_BYTE * len(data)


def test_a_count_larger_than_the_rest_is_refused_before_a_list_is_made() -> None:
    with pytest.raises(ProtocolError, match="topics claims 2147483647 elements and 4 bytes are left"):
        decode(MetadataRequest, 0, b"\x7f\xff\xff\xff\0\0\0\0")
    with pytest.raises(ProtocolError, match="topics claims 2147483646 elements and 2 bytes are left"):
        decode(MetadataRequest, 9, b"\xff\xff\xff\xff\x07\0\0")


def test_a_count_is_held_against_the_smallest_size_of_an_element() -> None:
    # Two topics of v0 take at least two bytes each, and three bytes are left.
    with pytest.raises(ProtocolError, match="topics claims 2 elements and 3 bytes are left"):
        decode(MetadataRequest, 0, b"\0\0\0\x02\0\0\0")


def test_a_request_has_so_many_elements_for_its_bytes_wherever_they_stand() -> None:
    """A frame of a hundred megabytes kept the loop for twelve seconds."""
    named, tail = b"\x02a\x00", encode(MetadataRequest(topics=[]), 9)[1:]

    def topics(count: int) -> bytes:
        return write_uvarint(count + 1) + named * count + tail

    assert len(decode(MetadataRequest, 9, topics(250_000)).topics or ()) == 250_000
    with pytest.raises(ProtocolError, match=r"a request of 9000\d\d bytes has too many elements"):
        decode(MetadataRequest, 9, topics(300_000))
    numbers = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 1000)
    with pytest.raises(ProtocolError, match="too many elements"):
        decode(OffsetFetchRequest, 7, encode(OffsetFetchRequest(topics=[numbers] * 300), 7))


def test_a_string_length_behind_the_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match="group_id claims 100 bytes and 2 are left"):
        decode(HeartbeatRequest, 0, b"\0\x64ab")


def test_null_where_null_is_not_allowed_is_refused() -> None:
    with pytest.raises(ProtocolError, match="group_id must not be null"):
        decode(HeartbeatRequest, 0, b"\xff\xff" + bytes(20))
    with pytest.raises(ProtocolError, match="group_id must not be null"):
        decode(HeartbeatRequest, 4, bytes(20))


def test_text_that_is_not_utf8_is_refused() -> None:
    good = encode(HeartbeatRequest(group_id="ab", member_id="m"), 4)
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode(HeartbeatRequest, 4, good.replace(b"ab", b"\xc3\x28"))


def test_a_string_over_32767_bytes_is_refused_as_in_kafka() -> None:
    longest = HeartbeatRequest(group_id="x" * 32767)
    assert decode(HeartbeatRequest, 4, encode(longest, 4)) == longest
    with pytest.raises(ValueError, match="group_id is longer than 32767 bytes"):
        encode(HeartbeatRequest(group_id="x" * 32768), 4)
    with pytest.raises(ProtocolError, match="group_id claims 32768 bytes"):
        decode(HeartbeatRequest, 4, b"\x81\x80\x02" + b"x" * 32768 + bytes(40))


def test_a_varint_of_more_than_five_bytes_or_31_bits_is_refused() -> None:
    with pytest.raises(ProtocolError, match="more than five bytes"):
        decode(MetadataRequest, 9, b"\x80\x80\x80\x80\x80\x01" + bytes(20))
    with pytest.raises(ProtocolError, match="over 31 bits"):
        decode(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + bytes(20))


def test_a_padded_varint_is_read_as_kafka_reads_it() -> None:
    # Some encoders reserve room for a length and fill it in later.
    assert decode(ApiVersionsRequest, 3, b"\x82\x00a\x02b\x00") == ApiVersionsRequest(
        client_software_name="a", client_software_version="b"
    )


def test_bytes_behind_the_message_are_refused_by_decode_only() -> None:
    data = encode(HeartbeatRequest(), 4) + b"\0"
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        decode(HeartbeatRequest, 4, data)
    assert decode_from(HeartbeatRequest, 4, data, 0)[1] == len(data) - 1


class TestTags:
    """FetchRequest v12 ends with cluster_id as tag 0, a nullable string; tags 1 and 2 came later."""

    HEAD = encode(FetchRequest(), 12)[:-1]

    def test_an_unknown_tag_is_skipped(self) -> None:
        assert decode(FetchRequest, 12, self.HEAD + b"\x01\x64\x03abc") == FetchRequest()

    def test_a_known_tag_between_unknown_ones_is_read(self) -> None:
        data = self.HEAD + b"\x03\x00\x02\x02c\x63\x00\x64\x03abc"
        assert decode(FetchRequest, 12, data) == FetchRequest(cluster_id="c")

    def test_order_and_repetition_are_tolerated_as_in_kafka(self) -> None:
        data = self.HEAD + b"\x03\x64\x00\x00\x02\x02c\x00\x02\x02d"
        assert decode(FetchRequest, 12, data) == FetchRequest(cluster_id="d")

    @pytest.mark.parametrize("tag", [b"\x00\x05\x02c", b"\x00\x03\x02c\0", b"\x00\x01\x02c"])
    def test_a_size_that_does_not_fit_the_value_is_refused(self, tag: bytes) -> None:
        with pytest.raises(ProtocolError):
            decode(FetchRequest, 12, self.HEAD + b"\x01" + tag)

    def test_a_forged_number_of_tags_ends_with_the_bytes(self) -> None:
        with pytest.raises(ProtocolError, match="end too early"):
            decode(FetchRequest, 12, self.HEAD + b"\xff\xff\xff\xff\x07")
        with pytest.raises(ProtocolError, match="end too early"):
            decode(HeartbeatRequest, 4, encode(HeartbeatRequest(), 4)[:-1] + b"\xff\xff\xff\xff\x07")

    def test_a_tag_longer_than_the_rest_is_refused(self) -> None:
        with pytest.raises(ProtocolError, match="tag 100 claims 2147483647 bytes and 1 are left"):
            decode(FetchRequest, 12, self.HEAD + b"\x01\x64\xff\xff\xff\xff\x07a")


class TestRecords:
    PARTITION = ProduceRequest.PartitionProduceData(records=b"batch")
    REQUEST = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[PARTITION])])

    def test_records_are_a_view_of_the_frame(self) -> None:
        frame = bytearray(encode(self.REQUEST, 9))
        read = decode(ProduceRequest, 9, memoryview(frame))
        records = read.topic_data[0].partition_data[0].records
        assert records == b"batch"
        frame[frame.index(b"batch")] = ord("B")
        assert records == b"Batch"

    def test_everything_else_is_copied(self) -> None:
        frame = bytearray(encode(self.REQUEST, 9))
        read = decode(ProduceRequest, 9, memoryview(frame))
        frame[:] = bytes(len(frame))
        assert read.topic_data[0].name == "t"


class TestWritersRefuseTheCallersMistakes:
    def test_a_version_that_does_not_exist(self) -> None:
        with pytest.raises(UnsupportedVersion, match="HeartbeatRequest has versions 0 to 4, not 5"):
            encode(HeartbeatRequest(), 5)
        with pytest.raises(UnsupportedVersion, match="HeartbeatRequest has versions 0 to 4, not -1"):
            decode(HeartbeatRequest, -1, b"")

    def test_a_field_that_the_version_lacks(self) -> None:
        with pytest.raises(
            UnsupportedVersion, match=r"MetadataRequest\.allow_auto_topic_creation is set, and version 3"
        ):
            encode(MetadataRequest(allow_auto_topic_creation=False), 3)

    @pytest.mark.parametrize(
        "message",
        [
            HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
            HeartbeatRequest(group_id=b"x"),  # type: ignore[arg-type]
            HeartbeatRequest(generation_id=2**31),
            HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
            HeartbeatRequest(group_id="\ud800"),
        ],
    )
    def test_a_value_that_does_not_fit(self, message: HeartbeatRequest) -> None:
        with pytest.raises(ValueError):
            encode(message, 4)

    def test_a_uuid_of_another_length(self) -> None:
        topic = MetadataRequest.MetadataRequestTopic(topic_id=b"short", name=None)
        with pytest.raises(ValueError, match="topic_id must have 16 bytes"):
            encode(MetadataRequest(topics=[topic]), 12)
