"""A bug in a flow is mended, and its tables are rebuilt from the log of a real node, beside readers and runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow.parquet as pq
from confluent_kafka import Producer

from tidelog.runtime.clock import SystemClock
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline.history import Mark, flow_file, read_history
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Table
from tidelog.spark.pipeline.reprocess.claims import reach_of
from tidelog.spark.pipeline.reprocess.places import Places, query_of
from tidelog.spark.pipeline.reprocess.reprocessing import Reprocessing, flows_to_rebuild
from tidelog.spark.pipeline.reprocess.since import ReprocessError, Since
from tidelog.spark.pipeline.runner import Runner
from tidelog.spark.pipeline.sinks import table_of
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # seconds alone, minutes beside others

FILE = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  trigger: 100ms
  restart: {{first: 100ms, most: 200ms, give_up_after: 20}}
flows:
  orders:
    kind: ingest
    topics: [{topic}]
    decode: {{wire: json, schema: "id BIGINT, at TIMESTAMP"}}
"""
PRICED = (
    "  priced: {{kind: sql, from: orders, query: 'SELECT payload.id, payload.id * {factor} AS price FROM orders'}}\n"
)
PLACED = """\
  placed:
    kind: sql
    from: orders
    query: SELECT topic, partition, offset, payload.id * {factor} AS price FROM orders
"""
MINUTES = """\
  minutes:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 1m
    window: {{tumbling: 1m}}
    measures: {{number: {measure}}}
"""


class Died(Exception):
    """A process, at a step."""


class Shop:
    def __init__(self, servers: str, topic: str, home: Path, spark: SparkSession) -> None:
        self.servers, self.topic, self.home = servers, topic, home
        self.spark = spark
        self.produced = 0

    def produce(self, number: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for n in range(self.produced, self.produced + number):
            value = {"id": n, "at": f"2026-11-16T00:{n // 30:02d}:{n % 30:02d}Z"}
            producer.produce(self.topic, json.dumps(value), partition=n % 2)
        assert producer.flush(60) == 0
        self.produced += number

    def pipeline(self, flows: str, **given: object) -> Pipeline:
        text = (FILE + flows).format(servers=self.servers, topic=self.topic, **given)
        return load_text(text, self.home, "shop.yaml", {})

    def run(self, pipeline: Pipeline) -> None:
        assert Runner(pipeline, self.spark, SystemClock(), print, once=True).run() == 0

    def reprocess(
        self,
        pipeline: Pipeline,
        flow: str,
        *,
        since: Since | None = None,
        keep_old: bool = False,
        die_at: str | None = None,
    ) -> None:
        def step(name: str) -> None:
            if name == die_at:
                raise Died(name)

        Reprocessing(
            pipeline,
            flow,
            # Queries of one name, the flow's, do not go together in one session.
            lambda: self.spark.newSession(),
            SystemClock(),
            print,
            since=since,
            keep_old=keep_old,
            wait=lambda: threading.Event().wait(0.05),
            step=step,
        ).run()


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    topic = request.node.name[:60]
    broker.create_topic(topic, partitions=2)
    return Shop(broker.bootstrap_servers, topic, tmp_path, spark)


def rows(table: Table, *columns: str) -> list[Any]:
    """Of one moment: the files are asked for once."""
    found: list[Any] = []
    for file in table_of(table).files():
        found += [tuple(row.values()) for row in pq.ParquetFile(file).read(columns=list(columns)).to_pylist()]
    return sorted(found, key=repr)


class Reader(threading.Thread):
    """Reads a table all the time: all of its rows are of one definition, and nothing that was there is missing."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self.factors: list[int] = []
        self.error: BaseException | None = None
        self._table = table
        self._seen: set[int] = set()
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            while not self._enough.wait(0.05):  # one that never rests would take a core from those it looks at
                self.look()
        except BaseException as error:
            self.error = error

    def look(self) -> None:
        found = rows(self._table, "id", "price")
        ids = [number for number, _ in found]
        assert len(ids) == len(set(ids)), "a row is there twice"
        assert self._seen <= set(ids), f"rows are missing: {sorted(self._seen - set(ids))[:5]}"
        self._seen = set(ids)
        factors = {price // number for number, price in found if number}
        assert len(factors) <= 1, f"rows of both definitions: {factors}"
        self.factors += [factor for factor in factors if self.factors[-1:] != [factor]]

    def finish(self) -> list[int]:
        self._enough.set()
        self.join(60)
        assert self.error is None, self.error
        self.look()
        return self.factors


def test_a_wrong_factor_is_mended_through_deaths_and_the_flow_goes_on(shop: Shop) -> None:
    shop.produce(100)
    wrong, right = shop.pipeline(PRICED, factor=2), shop.pipeline(PRICED, factor=3)
    shop.run(wrong)
    table = right.flows["priced"].table
    reader = Reader(table)
    reader.start()
    before = query_of(Places(wrong.work, "priced").checkpoint)
    with pytest.raises(ReprocessError, match="no flow has changed"):
        flows_to_rebuild(wrong, None, None)
    assert flows_to_rebuild(right, None, None) == [right.flows["priced"]]
    with pytest.raises(Died):  # nothing has changed yet
        shop.reprocess(right, "priced", die_at="standing still")
    assert rows(table, "id", "price") == sorted(((n, n * 2) for n in range(100)), key=repr)
    assert query_of(Places(wrong.work, "priced").checkpoint) == before
    shop.produce(20)
    with pytest.raises(Died):  # the tables are swapped, the checkpoint is not
        shop.reprocess(right, "priced", die_at="table 0")
    assert rows(table, "id", "price") == sorted(((n, n * 3) for n in range(120)), key=repr)
    shop.produce(30)
    shop.run(right)
    assert reader.finish() == [2, 3]
    assert rows(table, "id", "price") == sorted(((n, n * 3) for n in range(150)), key=repr)
    assert not Places(wrong.work, "priced").home.exists()
    with pytest.raises(ReprocessError, match="no flow has changed"):
        flows_to_rebuild(right, None, None)
    assert rows(right.flows["orders"].table, "offset", "partition") == sorted(
        ((n // 2, n % 2) for n in range(150)), key=repr
    )


@contextmanager
def running(runner: Runner) -> Iterator[None]:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(runner.run()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        runner.stop_asked = True
        thread.join(120)
    assert codes == [0]


def wait_until(reached: Callable[[], bool]) -> None:
    while not reached():
        threading.Event().wait(0.05)


def test_a_run_goes_on_through_a_reprocess_and_takes_the_new_definition(shop: Shop) -> None:
    shop.produce(100)
    wrong, right = shop.pipeline(PRICED, factor=2), shop.pipeline(PRICED, factor=3)
    table = right.flows["priced"].table
    told: list[str] = []
    with running(Runner(wrong, shop.spark, SystemClock(), told.append, reload=lambda: right)):
        wait_until(lambda: len(rows(table, "id")) == 100)
        wait_until(
            lambda: reach_of(Places(right.work, "priced").checkpoint).batch >= 0
        )  # Spark's own commit comes last
        reader = Reader(table)
        reader.start()
        shop.produce(30)
        shop.reprocess(right, "priced")
        shop.produce(30)
        wait_until(lambda: len(rows(table, "id")) == 160)
    assert reader.finish() == [2, 3]
    assert rows(table, "id", "price") == sorted(((n, n * 3) for n in range(160)), key=repr)
    assert [line for line in told if "was reprocessed" in line] == [
        "priced: was reprocessed; goes on with what took its place"
    ]
    assert not [line for line in told if "failed" in line]
    marks = [line.what for line in read_history(flow_file(right.work, "priced")) if isinstance(line, Mark)]
    assert marks == ["started", "paused", "reprocessed", "started", "stopped"]


def test_windows_and_a_part_of_a_table_are_rebuilt(shop: Shop) -> None:
    shop.produce(150)
    shop.run(shop.pipeline(MINUTES + PLACED, measure="sum(payload.id)", factor=2))
    right = shop.pipeline(MINUTES + PLACED, measure="count", factor=3)
    minutes, placed = right.flows["minutes"], right.flows["placed"]
    shop.reprocess(right, "minutes", keep_old=True)
    assert rows(minutes.table, "number") == [(30,)] * 3
    sums = [(sum(range(n * 30, n * 30 + 30)),) for n in range(3)]
    assert rows(Table(path=minutes.table.path + "__old"), "number") == sorted(sums, key=repr)
    shop.reprocess(right, "placed", since={(shop.topic, 0): 50, (shop.topic, 1): 60})
    shop.produce(60)
    shop.run(right)
    assert rows(minutes.table, "number") == [(30,)] * 5
    expected = [(n % 2, n // 2, n * (2 if n // 2 < (50, 60)[n % 2] else 3)) for n in range(210)]
    assert rows(placed.table, "partition", "offset", "price") == sorted(expected, key=repr)


def test_records_that_the_log_lost_are_not_given_up(shop: Shop) -> None:
    shop.produce(40)
    pipeline = shop.pipeline(PRICED, factor=2)
    with pytest.raises(ReprocessError, match="'priced' has landed nothing yet"):
        shop.reprocess(pipeline, "priced")
    shop.run(pipeline)
    delete_records(shop, 10)
    with pytest.raises(ReprocessError, match=rf"{shop.topic}-0: offsets 0 to 9; {shop.topic}-1: offsets 0 to 9"):
        shop.reprocess(pipeline, "priced")
    with pytest.raises(ReprocessError, match="'priced' has no topic, partition, offset"):
        shop.reprocess(pipeline, "priced", since={(shop.topic, 0): 15, (shop.topic, 1): 15})
    text = PRICED.replace("kind: sql", "kind: sql, format: parquet")
    with pytest.raises(ReprocessError, match="is no parquet table: give the changed flow another name"):
        shop.reprocess(shop.pipeline(text, factor=2), "priced")
    text = PRICED.replace("kind: sql", "kind: sql, partition_by: id")
    with pytest.raises(ReprocessError, match=r"is partitioned by \(\), the changed flow's by \(id\)"):
        shop.reprocess(shop.pipeline(text, factor=2), "priced")
    assert len(rows(pipeline.flows["priced"].table, "id")) == 40


def delete_records(shop: Shop, before: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    places = [TopicPartition(shop.topic, number, before) for number in (0, 1)]
    admin = AdminClient({"bootstrap.servers": shop.servers})
    for future in admin.delete_records(places).values():
        future.result(60)
