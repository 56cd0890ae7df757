"""The walk over records agrees with the decoder on what it looks at; any bytes are records or a ProtocolError."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import (
    HEADER_SIZE,
    RecordInput,
    build_batch,
    crc_is_valid,
    iter_records,
    read_header,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_walk import have_keys, recompressed

keys = st.none() | st.binary(max_size=5) | st.sampled_from([bytes(63), bytes(64), bytes(9000)])
records = st.lists(
    st.builds(
        RecordInput,
        keys,
        st.none() | st.binary(max_size=5) | st.just(bytes(20_000)),
        st.integers(0, 2**40),
        st.sampled_from([(), (("h", b"v"), ("", None))]),
    ),
    min_size=1,
    max_size=200,
)


def payload(inputs: list[RecordInput]) -> bytes:
    return bytes(build_batch(inputs)[HEADER_SIZE:])


@settings(max_examples=60)
@given(records)
def test_keys_are_found(inputs: list[RecordInput]) -> None:
    assert have_keys(payload(inputs), len(inputs)) == all(record.key is not None for record in inputs)


@settings(max_examples=40)
@given(records, st.integers(-2, 2).filter(bool))
def test_another_number_of_records_is_refused(inputs: list[RecordInput], more: int) -> None:
    if len(inputs) + more >= 0:
        with pytest.raises(ProtocolError):
            have_keys(payload(inputs), len(inputs) + more)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 10))
def test_any_bytes_are_records_or_refused(data: bytes, count: int) -> None:
    with suppress(ProtocolError):
        have_keys(data, count)


def test_a_key_longer_than_its_record_is_refused() -> None:
    good = bytearray(payload([RecordInput(b"key", b"v", 0)] * 2))
    good[4] = 0x7E
    with pytest.raises(ProtocolError, match="the key of a record runs over its end"):
        have_keys(good, 2)


@settings(max_examples=40)
@given(records, st.sampled_from(Codec), st.sampled_from(Codec))
def test_another_compression_has_the_same_records(inputs: list[RecordInput], before: Codec, after: Codec) -> None:
    batch = build_batch(inputs, codec=before, base_offset=7, producer_id=3, producer_epoch=1, base_sequence=9)
    again, header, _ = recompressed(batch, read_header(batch), after, None, 1 << 25)
    assert crc_is_valid(again, header) and header.codec == after and header.size == len(again)
    assert list(iter_records(again)) == list(iter_records(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 9)
