"""Apache Kafka as a witness of the decoder and the encoder: each side reads every field of what the other has written,
in every compression, with headers, nulls, both kinds of timestamps and control batches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.protocol.java_records import Ask, as_text, contents
from tests.unit.protocol.records.batches import blobs
from tidelog.log.transactions import read_ending
from tidelog.protocol.batch import APPEND_TIME, CONTROL, TRANSACTIONAL, RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import Columns, TwinName, decode, encode

pytestmark = pytest.mark.java

record_lists = st.lists(
    st.builds(
        RecordInput,
        key=blobs,
        value=blobs,
        timestamp=st.integers(0, 2**60),
        headers=st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


def fields_of(columns: Columns) -> list[str]:
    """What we read, in the words of the witness."""
    found: list[str] = []
    batches = columns.batches
    for index in range(batches.count):
        header = batches.header(index)
        flags = (bool(header.attributes & flag) for flag in (TRANSACTIONAL, CONTROL))
        numbers = (
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.attributes & 7,
            int(bool(header.attributes & APPEND_TIME)),
            *(str(flag).lower() for flag in flags),
            header.max_timestamp,
            header.record_count,
        )
        found.append("batch:" + "/".join(map(str, numbers)))
        rows = range(int(batches.first_record[index]), int(batches.first_record[index + 1]))
        found += [f"{columns.offset[row]}:{as_text(columns.record(row))}" for row in rows]
    return found


@pytest.mark.parametrize("codec", Codec)
@given(
    records=record_lists,
    base_offset=st.integers(0, 2**60),
    producer_id=st.integers(0, 2**60),
    base_sequence=st.integers(0, 2**31 - 1),
    attributes=st.sampled_from((0, TRANSACTIONAL)),
)
@settings(max_examples=15)
def test_java_reads_what_we_encode(
    ask: Ask, twin: TwinName, codec: Codec, records: list[RecordInput], base_offset: int, **fields: int
) -> None:
    columns = decode(bytes(build_batch(records, base_offset=base_offset)), twin=twin)
    # A small limit: several batches, whose sequences go on.
    batches = encode(columns, batch_bytes=9000, codec=codec, leader_epoch=7, producer_epoch=3, **fields)
    data = b"".join(batches)
    theirs = ask("R", data.hex()).split(" ")
    assert theirs == fields_of(decode(data, twin=twin))
    assert contents(theirs) == list(map(as_text, records))


@pytest.mark.parametrize("codec", Codec)
@given(
    records=record_lists,
    base_offset=st.integers(0, 2**60),
    appended=st.just(-1) | st.integers(0, 2**60),
    is_committed=st.booleans(),
    coordinator_epoch=st.integers(0, 2**31 - 1),
)
@settings(max_examples=15)
def test_we_decode_what_java_writes(
    ask: Ask,
    twin: TwinName,
    codec: Codec,
    records: list[RecordInput],
    base_offset: int,
    appended: int,
    is_committed: bool,
    coordinator_epoch: int,
) -> None:
    batch = ask("W", int(codec), appended, base_offset, 17, 3, 5, True, 9, *map(as_text, records))
    end_offset = base_offset + len(records)
    kind = "COMMIT" if is_committed else "ABORT"
    marker = ask("M", end_offset, 1_700_000_000_000, 17, 3, kind, coordinator_epoch)
    columns = decode(bytes.fromhex(batch + marker), twin=twin)
    ours = fields_of(columns)
    assert ours == ask("R", batch + marker).split(" ")
    stamped = [record._replace(timestamp=appended) if appended >= 0 else record for record in records]
    assert contents(ours)[:-1] == list(map(as_text, stamped))
    ending = read_ending(bytes.fromhex(marker), columns.batches.header(columns.batches.count - 1))
    assert ending == (is_committed, coordinator_epoch)
