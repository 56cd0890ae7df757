"""The head of a record, and the indexes of a Protobuf message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.payload.errors import PayloadError
from tidelog.spark.payload.wire import head, read_indexes, schema_id, write_indexes


def test_the_head_is_a_zero_byte_and_a_big_endian_id() -> None:
    assert head(0x01020304) == b"\x00\x01\x02\x03\x04"
    assert schema_id(b"\x00\x00\x00\x00\x07rest") == 7


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"", "0 bytes are too few"),
        (b"\x00\x00\x00\x01", "4 bytes are too few"),
        (b"\x01\x00\x00\x00\x07", "magic byte 1"),
        (b"{}   ", "magic byte 123"),
    ],
)
def test_what_is_no_record_is_refused(record: bytes, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        schema_id(record)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=8))
def test_an_id_comes_back(number: int, rest: bytes) -> None:
    assert schema_id(head(number) + rest) == number


def test_the_first_message_has_a_short_form() -> None:
    assert write_indexes([0]) == b"\x00"
    assert read_indexes(b"\x00rest") == ((0,), 1)
    # The long form of the same is read too; and [1, 0] as other clients write it.
    assert read_indexes(b"\x02\x00rest") == ((0,), 2)
    assert write_indexes([1, 0]) == b"\x04\x02\x00"


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=64), st.binary(max_size=4))
def test_indexes_come_back(indexes: list[int], rest: bytes) -> None:
    written = write_indexes(indexes)
    assert read_indexes(written + rest) == (tuple(indexes), len(written))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "end too early"),
        (b"\x04\x02", "end too early"),
        (b"\x80", "end too early"),
        (b"\x01", "-1 message indexes"),
        (b"\xfe\xff\xff\xff\x0f", "message indexes, at most 64"),
        (b"\x80" * 11, "longer than 10 bytes"),
    ],
)
def test_broken_indexes_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        read_indexes(body)


@given(st.binary(max_size=24))
def test_any_bytes_are_indexes_or_refused(body: bytes) -> None:
    try:
        indexes, start = read_indexes(body)
    except PayloadError:
        return
    assert 0 < start <= len(body)
    assert indexes
