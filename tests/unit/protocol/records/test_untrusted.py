"""Any bytes decode or are a ProtocolError, and both twins say the same of them."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.protocol.records.batches import (
    INT64_MAX,
    built_batches,
    everything,
    expected,
    records_of,
    with_crc,
    with_records,
)
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import APPEND_TIME, HEADER_SIZE, Record, RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import TwinName, decode

LIMIT = 1 << 20
BARE = b"\x0c\x00\x00\x00\x01\x01\x00"
"""A record with nothing in it."""

many = settings(max_examples=150)


def outcome(data: bytes, twin: TwinName, *, check_crc: bool = True) -> dict[str, Any] | None:
    try:
        return everything(decode(data, twin=twin, limit_bytes=LIMIT, check_crc=check_crc))
    except ProtocolError:
        return None


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """A log whose CRCs are right: a client computes them after it has made its mistake."""
    parts = []
    for batch in draw(st.lists(built_batches, min_size=1, max_size=3)):
        spoiled = bytearray(batch)
        for _ in range(draw(st.integers(0, 3))):
            near = draw(st.sampled_from((len(spoiled) - 1, min(len(spoiled) - 1, HEADER_SIZE + 30))))
            spoiled[draw(st.integers(0, near))] = draw(st.integers(0, 255) | st.sampled_from((0, 1, 127, 128, 255)))
        parts.append(with_crc(spoiled))
    return b"".join(parts)


@many
@given(st.binary(max_size=300))
@example(bytes(61))
@example(bytes(200))
@example(b"\xff" * 200)
def test_random_bytes(data: bytes) -> None:
    for check_crc in (True, False):
        assert outcome(data, "native", check_crc=check_crc) == outcome(data, "pure", check_crc=check_crc)


@many
@given(st.binary(max_size=120), st.integers(-1, 20))
def test_random_records_in_a_batch_that_is_in_order(records: bytes, count: int) -> None:
    log = with_records(records, count)
    assert outcome(log, "native") == outcome(log, "pure")


@many
@given(damaged_batches())
def test_damage_behind_a_right_crc(log: bytes) -> None:
    found = outcome(log, "pure")
    assert outcome(log, "native") == found
    assert outcome(log, "native", check_crc=False) == outcome(log, "pure", check_crc=False)


@many
@given(damaged_batches())
def test_decoder_and_control_plane_read_the_same(log: bytes) -> None:
    records: list[Record] | str
    try:
        records = expected(log)
    except ProtocolError as error:
        records = str(error)
    try:
        columns = decode(log, check_crc=False, twin="pure")
    except ProtocolError as error:
        stricter = ("more than 64 bits", "last offset")
        assert isinstance(records, str) or any(word in str(error) for word in stricter)
        return
    if isinstance(records, str):
        assert "not UTF-8" in records  # which decode leaves to whoever wants text
    else:
        assert records_of(columns) == records


@many
@given(st.data(), built_batches)
def test_every_cut_leaves_a_part(data: st.DataObject, batch: bytes) -> None:
    cut = data.draw(st.integers(0, len(batch) - 1))
    for twin in ("pure", "native"):
        assert decode(batch[:cut], twin=twin).consumed == 0  # type: ignore[arg-type]
    if cut >= HEADER_SIZE:
        # The same with a length that says so: the records themselves are short.
        short = bytearray(batch[:cut])
        struct.pack_into(">i", short, 8, cut - 12)
        assert outcome(with_crc(short), "pure") is None
        assert outcome(with_crc(short), "native") is None


@pytest.mark.parametrize(
    ("records", "count", "reason"),
    [
        pytest.param(b"", 1, "more records than", id="no record"),
        pytest.param(b"\x01" + bytes(6), 1, "runs over", id="negative length"),
        pytest.param(b"\xfe\xff\xff\xff\x0f\x00\x00", 1, "runs over", id="two gigabytes"),
        pytest.param(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, "runs over", id="nine exabytes"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 1, "64 bits", id="a length of 65 bits"),
        pytest.param(b"\xff" * 11, 1, "64 bits", id="a length without an end"),
        pytest.param(BARE, 2, "more records than", id="one record fewer than counted"),
        pytest.param(BARE * 2, 1, "left over", id="one more than counted"),
        pytest.param(BARE, 0, "left over", id="none counted"),
        pytest.param(BARE, -1, "more records than", id="negative count"),
        pytest.param(b"\x0c\x00\x00\x00\x03\x01\x00", 1, "negative", id="a key of length -2"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x03\x00", 1, "negative", id="a value of length -2"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x20\x00", 1, "runs over|does not fit", id="a value longer than its record"),
        pytest.param(b"\x0c\x00\x00\x00\x20\x01\x00", 1, "runs over|does not fit", id="a key longer than its record"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x7e", 1, "no room", id="more headers than bytes"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", 1, "no room", id="negative header count"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, "no name", id="a header without a name"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x00\x03", 1, "negative", id="a header with a length of -2"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, "does not fit", id="a record longer than its fields"),
        pytest.param(
            b"\x0a\x00\x00\x00\x01\x01\x00", 1, "runs over|does not fit", id="a record shorter than its fields"
        ),
        pytest.param(b"\x00" + bytes(6), 1, "runs over|does not fit", id="a record of no bytes"),
        pytest.param(b"\x0c\x00\x00\x02\x01\x01\x00", 1, "offset", id="an offset behind the last"),
        pytest.param(b"\x0c\x00\x00\x01\x01\x01\x00", 1, "offset", id="an offset before the first"),
    ],
)
def test_records_that_are_none(twin: TwinName, records: bytes, count: int, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode(with_records(records, count), twin=twin)


def test_a_record_may_not_borrow_from_the_next_batch(twin: TwinName) -> None:
    """In one buffer with others, the bytes that a record lacks are there; they are not its own."""
    short = with_records(b"\x0e\x00\x00\x00\x01\x01\x00", 1)
    with pytest.raises(ProtocolError, match="runs over"):
        decode(short + bytes(build_batch([RecordInput(None, None, 0)])), twin=twin)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"magic": 1}, "format other than 2"),
        ({"magic": -2}, "format other than 2"),
        ({"last_offset_delta": -1}, "last offset"),
        ({"base_offset": INT64_MAX, "last_offset_delta": 1}, "last offset"),
        ({"attributes": 5}, "compression 5 is unknown"),
        ({"attributes": 7}, "compression 7 is unknown"),
    ],
)
def test_headers_that_are_none(twin: TwinName, fields: dict[str, int], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode(with_records(BARE, 1, **fields), twin=twin)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_batch_smaller_than_its_header(twin: TwinName, length: int) -> None:
    log = bytearray(build_batch([RecordInput(None, None, 0)]))
    struct.pack_into(">i", log, 8, length)
    with pytest.raises(ProtocolError, match="smaller than its own header"):
        decode(log, twin=twin)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_claims_two_billion_records(twin: TwinName, codec: Codec) -> None:
    """Nothing is allocated for them: that would be 160 GB."""
    batch = bytearray(build_batch([RecordInput(None, b"v", 0)], codec=codec))
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    with pytest.raises(ProtocolError, match="more records than"):
        decode(with_crc(batch), twin=twin)


def test_a_timestamp_that_no_clock_can_show(twin: TwinName) -> None:
    up, down = b"\x0c\x00\x02\x00\x01\x01\x00", b"\x0c\x00\x01\x00\x01\x01\x00"
    assert decode(with_records(up, 1, base_timestamp=5), twin=twin).timestamp.tolist() == [6]
    assert decode(with_records(up, 1, base_timestamp=INT64_MAX - 1), twin=twin).timestamp.tolist() == [INT64_MAX]
    assert decode(with_records(down, 1, base_timestamp=1 - 2**63), twin=twin).timestamp.tolist() == [-(2**63)]
    for record, base in ((up, INT64_MAX), (down, -(2**63))):
        with pytest.raises(ProtocolError, match="timestamp"):
            decode(with_records(record, 1, base_timestamp=base), twin=twin)
        stamped = with_records(record, 1, base_timestamp=base, max_timestamp=3, attributes=APPEND_TIME)
        assert decode(stamped, twin=twin).timestamp.tolist() == [3]


def test_deltas_of_64_bits(twin: TwinName) -> None:
    """The whole range of a varlong, to both sides."""
    lowest = b"\x1e\x00" + b"\xff" * 9 + b"\x01" + b"\x00\x01\x01\x00"
    assert decode(with_records(lowest, 1, base_timestamp=0), twin=twin).timestamp.tolist() == [-(2**63)]
    highest = b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00\x01\x01\x00"
    assert decode(with_records(highest, 1, base_timestamp=0), twin=twin).timestamp.tolist() == [INT64_MAX]
    longer = b"\x1e\x00" + b"\xff" * 9 + b"\x02" + b"\x00\x01\x01\x00"
    with pytest.raises(ProtocolError, match="64 bits"):
        decode(with_records(longer, 1, base_timestamp=0), twin=twin)


def test_numbers_with_zeros_in_front_are_numbers(twin: TwinName) -> None:
    padded = b"\x96\x00" + b"\x00" + b"\x80\x00" * 2 + b"\x81\x00" * 2 + b"\x80\x00"
    assert expected(with_records(padded, 1))[0].key is None
    assert records_of(decode(with_records(padded, 1), twin=twin)) == expected(with_records(padded, 1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="guards pages by mprotect")
@pytest.mark.parametrize("side", ["front", "back"])
def test_native_code_reads_nothing_beside_the_log(side: str) -> None:
    """The log ends, or begins, at a page that may not be read: a byte too far ends the process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.protocol.records.guarded", side],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[4],
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    decoded, refused = map(int, done.stdout.split())
    assert decoded > 100
    assert refused > 100


def test_no_kernel_writes_or_reads_outside_its_arrays(tmp_path: Path) -> None:
    """The same with numba's own check of every index, which costs too much to keep."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.protocol.records.guarded", "none"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[4],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
