"""What a task makes of raw batches, without Spark: bounds, hidden batches, times that do not fit, chunks that grow."""

from __future__ import annotations

from functools import partial

import pytest

pytest.importorskip("pyspark")

from tidelog.client.fetching import AbortedTransaction
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import decode, decode_scanned
from tidelog.spark.pump import Chunk
from tidelog.spark.source import decoding, rows
from tidelog.spark.source.decoding import Decoder
from tidelog.spark.source.task import Task

BIG = 2**62


def task(end: int = 1000) -> Task:
    return Task(
        kafka={},
        topic="t",
        partition=3,
        start=0,
        end=end,
        topic_id=None,
        isolation="read_committed",
        headers=False,
        fail_on_data_loss=True,
        silence_s=1,
    )


def batch(base: int, count: int, *, producer: int = -1, attributes: int = 0, codec: Codec = Codec.NONE) -> bytes:
    inputs = [RecordInput(b"k", b"v%d" % (base + one) * 50, timestamp=1000 + base + one) for one in range(count)]
    batch = build_batch(inputs, base_offset=base, codec=codec, attributes=attributes, producer_id=producer)
    return bytes(batch)


def offsets(data: bytes, *, begin: int = 0, end: int = 1000, aborted: tuple[AbortedTransaction, ...] = ()) -> list[int]:
    chunk = Chunk(memoryview(data), aborted, 0, 0)
    parts = rows._batches(chunk, task(end), begin, Decoder(str(task(end))))
    return [offset for part in parts for offset in part["offset"].to_pylist()]


def test_records_outside_the_task_are_left_out() -> None:
    data = batch(0, 10) + batch(20, 10, codec=Codec.ZSTD)
    assert offsets(data) == [*range(10), *range(20, 30)]
    assert offsets(data, begin=5, end=23) == [*range(5, 10), *range(20, 23)]
    assert offsets(data, begin=10, end=20) == []


def test_aborted_batches_are_hidden_from_their_first_offset_to_the_marker() -> None:
    of = partial(batch, attributes=TRANSACTIONAL)
    marker = partial(batch, count=1, attributes=TRANSACTIONAL | CONTROL)
    data = of(0, 2, producer=7) + marker(2, producer=7)
    data += of(3, 2, producer=7) + of(5, 2, producer=8) + batch(7, 1) + marker(8, producer=7)
    data += of(9, 1, producer=7) + marker(10, producer=7) + marker(11, producer=8)
    assert offsets(data, aborted=(AbortedTransaction(7, 3),)) == [0, 1, 5, 6, 7, 9]
    assert offsets(data, aborted=(AbortedTransaction(8, 5), AbortedTransaction(7, 3))) == [0, 1, 7, 9]
    # One that began before the chunk.
    assert offsets(of(20, 1, producer=9) + marker(21, producer=9), aborted=(AbortedTransaction(9, 4),)) == []


def test_a_chunk_that_is_too_large_when_it_is_decompressed_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(
        batch(10 * number, 10, codec=Codec.GZIP, attributes=TRANSACTIONAL, producer=number) for number in range(9)
    )
    monkeypatch.setattr(decoding, "decode_scanned", partial(decode_scanned, limit_bytes=10_000))
    with pytest.raises(ProtocolError, match="10000 bytes"):
        decode(data, limit_bytes=10_000)
    assert offsets(data) == list(range(90))
    # The parts know which of the chunk's batches they are.
    assert offsets(data, aborted=(AbortedTransaction(6, 60),)) == [*range(60), *range(70, 90)]


def test_portions_are_small_however_a_chunk_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the memory that they are decompressed to is used again only when nobody looks at it any more."""
    monkeypatch.setattr(decoding, "PORTION_BYTES", 4000)
    parts = [batch(10 * number, 10, codec=codec) for number, codec in enumerate([*Codec] * 8)]
    data = b"".join(parts)
    chunk = Chunk(memoryview(data), (), 0, 0)
    found = list(rows._batches(chunk, task(), 0, Decoder("t")))
    assert len(found) >= 8
    assert [offset for part in found for offset in part["offset"].to_pylist()] == list(range(400))
    assert [value for part in found for value in part["value"].to_pylist()] == [
        b"v%d" % number * 50 for number in range(400)
    ]
    assert offsets(data, aborted=(), begin=35, end=77) == list(range(35, 77))


def test_a_damaged_batch_is_an_error_that_says_where() -> None:
    data = bytearray(batch(0, 3) + batch(3, 3))
    data[-1] ^= 1
    with pytest.raises(ProtocolError, match="t-3 from offset 0 to 1000: the CRC"):
        offsets(bytes(data))


def test_a_time_that_spark_cannot_keep_is_null_and_stops_nothing() -> None:
    times = [5, BIG, -BIG, -1, 7]
    data = b"".join(
        bytes(build_batch([RecordInput(None, b"x", timestamp=time)], base_offset=number))
        for number, time in enumerate(times)
    )
    (part,) = rows._batches(Chunk(memoryview(data), (), 0, 0), task(), 0, Decoder("t"))
    found = part["timestamp"].cast("int64").to_pylist()
    assert found == [5000, None, None, -1000, 7000]
    assert str(part.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
