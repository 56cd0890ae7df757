"""The same batches as Apache Kafka's MemoryRecords, and each side reads what the other compressed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.protocol.java_records import Ask, as_text, contents
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch, iter_records
from tidelog.protocol.compression import Codec

pytestmark = pytest.mark.java

blobs = st.none() | st.binary(max_size=60) | st.integers(1, 90_000).map(lambda size: bytes(size))
record_lists = st.lists(
    st.builds(
        RecordInput,
        key=blobs,
        value=blobs,
        timestamp=st.integers(0, 2**60),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


@given(
    records=record_lists, base=st.integers(0, 2**40), producer_id=st.integers(-1, 2**40), transactional=st.booleans()
)
@settings(max_examples=60)
def test_the_same_bytes(ask: Ask, records: list[RecordInput], base: int, producer_id: int, transactional: bool) -> None:
    transactional = transactional and producer_id >= 0
    epoch, sequence = (3, 7) if producer_id >= 0 else (-1, -1)
    ours = build_batch(
        records,
        base_offset=base,
        leader_epoch=5,
        attributes=TRANSACTIONAL if transactional else 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    theirs = ask("W", 0, -1, base, producer_id, epoch, sequence, transactional, 5, *map(as_text, records))
    assert ours.hex() == theirs


@given(records=record_lists, codec=st.sampled_from(Codec))
@settings(max_examples=60)
def test_java_reads_ours_and_we_read_javas(ask: Ask, records: list[RecordInput], codec: Codec) -> None:
    ours = build_batch(records, codec=codec)
    assert contents(ask("R", ours.hex()).split(" ")) == list(map(as_text, records))
    theirs = bytes.fromhex(ask("W", int(codec), -1, 0, -1, -1, -1, False, 5, *map(as_text, records)))
    read = [RecordInput(record.key, record.value, record.timestamp, record.headers) for record in iter_records(theirs)]
    assert list(map(as_text, read)) == list(map(as_text, records))


def test_java_reads_ours_in_many_blocks(ask: Ask) -> None:
    records = [RecordInput(b"%d" % number, bytes([number]) * 70_000, number) for number in range(5)]
    for codec in Codec:
        fields = ask("R", build_batch(records, codec=codec).hex()).split(" ")
        assert contents(fields) == list(map(as_text, records))
