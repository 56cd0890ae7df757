"""The verdict: what was acknowledged is in the log, and what is in the log is in each table, once and as it was."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.spark.faults.generator import At
from tests.spark.faults.rig import AHEAD, TENTH, THIRD
from tidelog.spark.lake import open_table
from tidelog.spark.pipeline import load
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.model import Flow, Table


def audit_lines(file: Path) -> dict[str, str | None]:
    """For each flow whose rows have coordinates what its audit finds wrong; None for one that balances."""
    found: dict[str, str | None] = {}
    pipeline = load(file)
    by_coordinates = [name for name, flow in pipeline.flows.items() if kind_of(flow).outlets is not None]
    for name, report in check(pipeline, by_coordinates, lambda text: None):
        found[name] = None if report.balanced else report.table(named_lines=5)
    return found


def proof_lines(file: Path) -> dict[str, str | None]:
    """The same for every flow, those that are computed anew too: of them, what cannot be proved is trouble as well."""
    found: dict[str, str | None] = {}
    for name, report in check(load(file), [], lambda text: None):
        found[name] = None if report.verdict == "balanced" else report.table(named_lines=5)
    return found


def read_log(servers: str, topic: str) -> dict[At, bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        left = set(consumer.list_topics(topic, 60).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        found: dict[At, bytes] = {}
        while left:
            for message in consumer.consume(5000, 1.0):
                error = message.error()
                if error is None:
                    found[message.partition(), message.offset()] = message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise AssertionError(error)
        return found
    finally:
        consumer.close()


def compare_log(acknowledged: dict[At, bytes], log: dict[At, bytes]) -> list[str]:
    """An idempotent producer that was never killed: the log has what was acknowledged and nothing else."""
    lost = sorted(at for at, value in acknowledged.items() if log.get(at) != value)
    more = sorted(log.keys() - acknowledged.keys())
    doubled = [value for value, count in Counter(log.values()).items() if count > 1]
    return [
        *([f"{len(lost)} acknowledged records are not in the log, {lost[0]} first"] if lost else []),
        *([f"{len(more)} records in the log were never acknowledged, {more[0]} first"] if more else []),
        *([f"{len(doubled)} records are in the log twice, {doubled[0]!r} first"] if doubled else []),
    ]


def compare_published(published: dict[At, bytes], log: dict[At, bytes]) -> list[str]:
    """Each id that a tenth of the log has is in the topic once, for a reader of committed records."""
    wanted = Counter(b"%d" % number for value in log.values() if (number := json.loads(value)["id"]) % TENTH == 0)
    found = Counter(published.values())
    missing, surplus = wanted - found, found - wanted
    return [
        *([f"{missing.total()} rows were not published, {min(missing)!r} is one"] if missing else []),
        *([f"{surplus.total()} rows were published twice or are foreign, {min(surplus)!r} is one"] if surplus else []),
    ]


def compare_pairs(flow: Flow, log: dict[At, bytes]) -> list[str]:
    """Each pair that the log has is in the table once. Which rows were late depends on the batches, and is taken from
    the table of late rows; the audit of each side says whether they are of the log."""
    late = Counter(_rows(flow.aside["late"], "side", "partition", "offset"))
    places = ("left_partition", "left_offset", "right_partition", "right_offset")
    return pair_troubles(Counter(_rows(flow.table, *places)), late, log)


def pair_troubles(found: Counter[Any], late: Counter[Any], log: dict[At, bytes]) -> list[str]:
    by_id = {json.loads(value)["id"]: at for at, value in log.items()}
    wanted = Counter(
        (*by_id[number + AHEAD], *at)
        for number, at in by_id.items()
        if number % THIRD and number + AHEAD in by_id
        if ("left", *by_id[number + AHEAD]) not in late and ("right", *at) not in late
    )
    missing, surplus = wanted - found, found - wanted
    return [
        *([f"{missing.total()} pairs are not in the table, {min(missing)} first"] if missing else []),
        *([f"{surplus.total()} pairs of the table are doubled or foreign, {min(surplus)} first"] if surplus else []),
    ]


def _rows(table: Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    for file in open_table(table.path, table.format, partition_by=table.partition_by).files():
        for row in pq.ParquetFile(file).read(columns=list(columns)).to_pylist():
            yield tuple(row[column] for column in columns)


def compare_table(table: Table, log: dict[At, bytes]) -> list[str]:
    """Contents too, which the audit does not look at."""
    rows = Counter(((partition, at), value) for partition, at, value in _rows(table, "partition", "offset", "value"))
    wanted = Counter(log.items())
    missing, surplus = wanted - rows, rows - wanted
    return [
        *([f"{missing.total()} records are not in the table, {min(missing)[0]} first"] if missing else []),
        *([f"{surplus.total()} rows of the table are doubled or foreign, {min(surplus)[0]} first"] if surplus else []),
    ]
