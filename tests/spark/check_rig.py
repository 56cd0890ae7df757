"""For the tests of `check`: flows that have landed batches without a running query, and tables that were tampered with.

What a query would do is done by hand: the flow's plan over a stretch of the log, its own sink, and the files of a
checkpoint. So a test costs no start of a stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer

from tidelog.spark.pipeline.checking import Finding, check
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.kinds.ingest import Ingest, source_options
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.model import Pipeline, Table
from tidelog.spark.pipeline.origins import ingests_behind
from tidelog.spark.pipeline.plans import Plans
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.starts import note_definition
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ends = Mapping[str, int]
"""By topic, or by the ingest flow where several read one topic; the first partition's end."""
Change = Callable[[pa.Table], "pa.Table | None"]
"""Of a file's rows; None when it has none of those that are to be changed."""


def produce(broker: Broker, topic: str, values: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, json.dumps(value), key=str(value["id"]), partition=0)
    assert producer.flush(60) == 0


class World:
    def __init__(self, spark: SparkSession, broker: Broker, home: Path, text: str) -> None:
        self.spark = spark
        self.broker = broker
        self.home = home
        head = f"name: shop\nbootstrap.servers: {broker.bootstrap_servers}\nlake: lake\nflows:\n"
        self.pipeline: Pipeline = load_text(head + text, home, "shop.yaml", {})
        self._ends: dict[str, Ends] = {}
        self._batches: dict[str, int] = {}

    def land(self, flow: str, ends: Ends, *, commit: bool = True) -> None:
        """The next batch of a flow, up to these ends."""
        one, starts = self.pipeline.flows[flow], self._ends.get(flow, {})
        batch = self._batches.get(flow, -1) + 1
        plans = Plans(self.spark, self.pipeline, self._source(starts, ends))
        query = f"query-of-{flow}"
        checkpoint = self.pipeline.work / "checkpoints" / flow
        note_definition(self.pipeline, one, query)
        kind_of(one).sink(one, self.pipeline).write(plans.stream(flow), query, batch, f"{batch}-0")
        # As Spark: a line for each source in the order of the plan, also where two are of one topic.
        lines = [
            json.dumps({_topic(source): {"0": _of(source, ends)}}) for source in ingests_behind(self.pipeline, one)
        ]
        files = {"metadata": json.dumps({"id": query}), f"offsets/{batch}": "\n".join(["v1", "{}", *lines])}
        files |= {f"commits/{batch}": "v1\n{}"} if commit else {}
        for name, content in files.items():
            (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
            (checkpoint / name).write_text(content)
        self._ends[flow], self._batches[flow] = ends, batch

    def check(self, flow: str) -> Finding:
        ((name, finding),) = check(self.pipeline, [flow], lambda text: None, spark=self.spark)
        assert name == flow
        return finding

    def _source(self, starts: Ends, ends: Ends) -> Callable[[Ingest, bool], DataFrame]:
        def read(ingest: Ingest, committing: bool) -> DataFrame:
            options = source_options(self.pipeline, ingest)
            topic, start = _topic(ingest), _of(ingest, starts) if starts else 0
            options["startingOffsets"] = json.dumps({topic: {"0": start}})
            options["endingOffsets"] = json.dumps({topic: {"0": _of(ingest, ends)}})
            return self.spark.read.format("tidelog").options(**options).load()

        return read


def _topic(ingest: Ingest) -> str:
    (topic,) = ingest.topics
    return topic


def _of(ingest: Ingest, ends: Ends) -> int:
    return ends[ingest.name] if ingest.name in ends else ends[_topic(ingest)]


def tamper(table: Table, change: Change) -> Callable[[], None]:
    """Change one file of the table, the first for which the change gives something; what is returned undoes it."""
    for path in table_of(table).files():
        content = Path(path).read_bytes()
        changed = change(pq.read_table(path, partitioning=None))
        if changed is not None:
            pq.write_table(changed, path)
            return lambda: Path(path).write_bytes(content) and None
    raise AssertionError("there is no such row")


def without(column: str, value: object) -> Change:
    def change(rows: pa.Table) -> pa.Table | None:
        at = rows.column(column).to_pylist().index(value) if value in rows.column(column).to_pylist() else None
        return None if at is None else pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])

    return change


def doubled(column: str, value: object) -> Change:
    def change(rows: pa.Table) -> pa.Table | None:
        at = rows.column(column).to_pylist().index(value) if value in rows.column(column).to_pylist() else None
        return None if at is None else pa.concat_tables([rows, rows.slice(at, 1)])

    return change


def with_other(column: str, value: object, other: object) -> Change:
    def change(rows: pa.Table) -> pa.Table | None:
        values = rows.column(column).to_pylist()
        if value not in values:
            return None
        values[values.index(value)] = other
        index = rows.schema.get_field_index(column)
        return rows.set_column(index, rows.schema.field(index), pa.array(values, rows.schema.field(index).type))

    return change
