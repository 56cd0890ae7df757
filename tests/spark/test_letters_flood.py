"""A flood of poison: its letters are all there once, the query lives on, and the driver never has the records in hand.

Spark itself counts what tasks send to the driver, and fails a job that is given more than `spark.driver.maxResultSize`.
With a bound far below the flood, a `collect()` of records anywhere on the way would be the end of the query. What the
driver gets in other ways, or bit by bit, is seen by what it holds between the steps of a batch, beside a batch a
hundred times smaller.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
from confluent_kafka import Producer

from tests.spark.letter_rig import Rig
from tidelog.spark.audit.letters import Letters
from tidelog.spark.link import Link
from tidelog.spark.pipeline import left_out
from tidelog.spark.pipeline.letters.sink import LetterSink
from tidelog.spark.pipeline.origins import origins_of
from tidelog.spark.pipeline.recomputing import Stretch
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # seconds alone, minutes beside others

SMALL = 2_000
RECORDS = 200_000
TOTAL = SMALL + RECORDS
RESULT_BYTES = 1 << 20  # ten bytes for each poison record; its coordinates alone take three times as many
GROWTH_BYTES = 16 << 20  # from a small batch to the flood: 160 for each letter; its headers alone take more
GROWTH_BLOCKS = 10_000  # one for ten letters
COLLECTIONS = 6  # one tells Spark's cleaner which broadcasts nobody needs any more; a later one finds them gone
RESULT_SIZE = "spark.driver.maxResultSize"
FILE = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  trigger: 100ms
flows:
  orders:
    kind: ingest
    topics: flood
    decode: {{wire: json, schema: "id BIGINT, amount BIGINT"}}
    dead_letters:
      topic: flood.dead
      rules: {{positive: "payload.amount > 0"}}
"""


@contextmanager
def bounded(spark: SparkSession) -> Iterator[None]:
    """Spark looks at the bound whenever a stage begins."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get(RESULT_SIZE, "1g")
    conf.set(RESULT_SIZE, str(RESULT_BYTES))
    try:
        yield
    finally:
        conf.set(RESULT_SIZE, before)


class Meter:
    """The most that the driver has held at any step of its batches, where no task runs: what garbage collections have
    left in Java's heap, Arrow's memory, and blocks of Python's allocator, of which every object is one at least."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark.sparkContext._gateway.jvm.java.lang
        self.bytes_max = 0
        self.blocks_max = 0

    def step(self, point: str) -> None:
        gc.collect()
        self.bytes_max = max(self.bytes_max, min(self._bytes() for _ in range(COLLECTIONS)))
        self.blocks_max = max(self.blocks_max, sys.getallocatedblocks())

    def _bytes(self) -> int:
        self._java.System.gc()
        time.sleep(0.05)  # Spark's cleaner works between two collections, which stop it
        heap = self._java.Runtime.getRuntime()
        return int(heap.totalMemory() - heap.freeMemory()) + pa.total_allocated_bytes()


def flood(rig: Rig, numbers: range) -> None:
    """A quarter is broken, a quarter breaks a rule."""
    producer = Producer({"bootstrap.servers": rig.servers, "linger.ms": 50, "queue.buffering.max.messages": RECORDS})
    for n in numbers:
        value = b"{broken" if n % 4 == 0 else b'{"id": %d, "amount": %d}' % (n, -1 if n % 4 == 2 else 1)
        producer.produce("flood", value, partition=n % 2)
    assert producer.flush(120) == 0


def test_a_flood_neither_ends_the_query_nor_comes_into_the_driver(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(broker, tmp_path, FILE)
    broker.create_topic("flood", partitions=2)
    flood(rig, range(SMALL))
    with bounded(spark), pytest.raises(Exception, match="bigger than"):
        spark.range(RECORDS).toArrow()  # the bound is one: a number for each record is more than it allows

    def has_landed(rows: int) -> bool:
        state = rig.state()
        assert state is None or state.last_error is None, state
        return state is not None and state.rows == rows

    few, many = Meter(spark), Meter(spark)
    monkeypatch.setattr(LetterSink, "step", staticmethod(few.step))
    with bounded(spark), rig.running(spark):
        rig.until(lambda: has_landed(SMALL // 2))
    flood(rig, range(SMALL, TOTAL))
    monkeypatch.setattr(LetterSink, "step", staticmethod(many.step))
    with bounded(spark), rig.running(spark):
        rig.until(lambda: has_landed(RECORDS // 2))
        rig.produce("flood", [{"id": TOTAL, "amount": 1}], partition=0)  # and it lives on
        rig.until(lambda: has_landed(RECORDS // 2 + 1))
    assert many.bytes_max - few.bytes_max < GROWTH_BYTES
    assert many.blocks_max - few.blocks_max < GROWTH_BLOCKS
    state = rig.state()
    assert state is not None
    assert (state.failures, state.restarts, state.last_error) == (0, 0, None)
    assert state.dead == {"decode": TOTAL // 4, "positive": TOTAL // 4}

    poison = {(0, n) for n in range(TOTAL // 2)}  # all that is even is in the first partition
    with Link({"bootstrap.servers": rig.servers}) as link:
        assert_once(Letters(link, "flood.dead", "orders").rows(), poison)
    assert rig.balance() == {"lake": TOTAL // 2 + 1, "dead letters": TOTAL // 2, "retrying": 0}

    # What a flow that reads this one is not given is computed for its audit, a part of the log at a time.
    monkeypatch.setattr(left_out, "OFFSETS_AT_ONCE", 25_000)
    (origin,) = origins_of(rig.pipeline, rig.pipeline.flows["orders"])
    assert origin.claim is not None
    with bounded(spark):
        assert_once(left_out.LeftOut(lambda: spark, rig.pipeline, origin).rows(), poison)


def assert_once(batches: Iterator[pa.RecordBatch], places: set[tuple[int, int]]) -> None:
    rows = [np.column_stack([batch.column("partition"), batch.column("offset")]) for batch in batches]
    found = np.concatenate(rows)
    assert len(found) == len(places)
    assert set(map(tuple, found.tolist())) == places


def test_parts_of_a_stretch_are_the_stretch() -> None:
    nobody: Any = None
    starts, ends = {("a", 0): 5, ("a", 1): 0, ("b", 0): 7}, {("a", 0): 12, ("a", 1): 3, ("b", 0): 7}
    whole = Stretch(ingest=nobody, starts=starts, ends=ends, gone=[])
    for most in range(1, 12):
        parts = list(left_out.parts_of(whole, most))
        found = [(at, n) for part in parts for at in part.ends for n in range(part.starts[at], part.ends[at])]
        assert found == [(at, n) for at in ends for n in range(starts[at], ends[at])]
        sizes = [sum(part.ends[at] - part.starts[at] for at in part.ends) for part in parts]
        assert sizes == [most] * (10 // most) + ([10 % most] if 10 % most else [])
