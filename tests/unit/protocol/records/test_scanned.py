"""Headers first, then the records of some batches: what decode gives for those, in room that is used again."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.protocol.records.batches import built_batches
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import Columns, Scratch, TwinName, decode, decode_scanned, scan
from tidelog.protocol.records.twins import module

LOGS = st.lists(built_batches, min_size=1, max_size=3)


def records(columns: Columns) -> list[object]:
    return [columns.record(row) for row in range(columns.count)]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(logs=st.lists(LOGS, min_size=1, max_size=3), chosen=st.data())
def test_some_batches_decode_as_in_the_whole(twin: TwinName, logs: list[list[bytes]], chosen: st.DataObject) -> None:
    """One scratch room for several logs, which grows meanwhile."""
    scratch = Scratch()
    for log in logs:
        data = b"".join(log)
        rows = sorted(chosen.draw(st.sets(st.integers(0, len(log) - 1))))
        some = module("decode", twin).select(scan(data, twin=twin), rows)
        found = decode_scanned(data, some, twin=twin, scratch=scratch)
        expected = decode(b"".join(log[row] for row in rows), twin=twin)
        assert records(found) == records(expected)
        assert found.batches.base_offset.tolist() == expected.batches.base_offset.tolist()
        assert found.batches.first_record.tolist() == expected.batches.first_record.tolist()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, 8000, 20_000])
def test_a_wrong_crc_is_found_wherever_it_is(twin: TwinName, size: int) -> None:
    """Small batches and large ones: they are not checked by the same code."""
    batches = [bytes(build_batch([RecordInput(b"k", bytes(size), 1)], base_offset=number)) for number in range(4)]
    wrong_crc = module("decode", twin).wrong_crc
    whole = b"".join(batches)
    assert wrong_crc(memoryview(whole), scan(whole, twin=twin)) == -1
    for row, batch in enumerate(batches):
        for at in (21, len(batch) // 2, len(batch) - 1):
            spoiled = bytearray(whole)
            spoiled[row * len(batch) + at] ^= 0x40
            headers = scan(bytes(spoiled), check_crc=False, twin=twin) if at > 60 else scan(whole, twin=twin)
            assert wrong_crc(memoryview(spoiled), headers) == row


def test_scratch_room_is_bounded_by_the_limit(twin: TwinName) -> None:
    """What was left in it from before does not count as allowed."""
    scratch = Scratch()
    scratch.room(0, 1 << 20)
    data = bytes(build_batch([RecordInput(b"k", bytes(5000), 1)], codec=Codec.ZSTD))
    batches = scan(data, twin=twin)
    with pytest.raises(ProtocolError, match="larger than 4000 bytes"):
        decode_scanned(data, batches, limit_bytes=4000, twin=twin, scratch=scratch)
    assert decode_scanned(data, batches, limit_bytes=6000, twin=twin, scratch=scratch).count == 1


def test_what_somebody_still_holds_is_not_moved() -> None:
    scratch = Scratch()
    scratch.room(0, 10)[:3] = b"abc"
    held = scratch.filled(3)
    scratch.room(3, 1 << 20)[:3] = b"def"
    assert held == b"abc" and scratch.filled(6) == b"abcdef"
    with pytest.raises(TypeError):
        held[0] = 1  # type: ignore[index]
