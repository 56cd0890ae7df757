"""Flows that publish, on a real node: each row once for a reader of committed records, whatever failed in between."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.spark.sinking import committed_messages
from tidelog.runtime.clock import SystemClock
from tidelog.spark.lake import open_table
from tidelog.spark.pipeline import Pipeline, PipelineError
from tidelog.spark.pipeline.batch_state import BatchState
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.kinds.publish import PublishSink
from tidelog.spark.pipeline.load import load_text
from tidelog.spark.pipeline.runner import Runner
from tidelog.spark.pipeline.sinks import Written
from tidelog.spark.pipeline.state import StateFiles
from tidelog.spark.pipeline.views.kept import Kept
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # seconds alone, minutes beside others

RECORDS = 240
KEYS = 5
FILE = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  restart: {{first: 100ms, most: 200ms, give_up_after: 20}}
flows:
  orders:
    kind: ingest
    topics: [orders]
    max_records: 130
    decode: {{wire: json, schema: "id BIGINT, user STRING, at TIMESTAMP"}}
  loud:
    kind: publish
    from: orders
    topic: loud
    key: payload.user
    value: named_struct('id', payload.id, 'at', payload.at)
    where: payload.id % 2 = 0
    headers: {{origin: topic, place: partition}}
    create: {{partitions: 3}}
  minutes:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 1m
    window: {{tumbling: 1m}}
    by: [payload.user]
    measures: {{number: count}}
    publish: {{topic: minutes, create: {{partitions: 2, cleanup.policy: compact}}}}
  latest:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 1m
    window: {{tumbling: 1m}}
    by: [payload.user]
    measures: {{number: count}}
    publish: {{topic: latest, key: user, value: window_start, create: {{partitions: 2}}}}
  users:
    kind: view
    from: orders
    key: {{user: payload.user}}
    columns: {{id: payload.id}}
    deletes: payload.id % 10 = 3 OR payload.id = 237
    buckets: 2
    publish: {{topic: users, value: id, create: {{partitions: 2, cleanup.policy: compact}}}}
"""


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for n in range(RECORDS):
        value = {"id": n, "user": f"u{n % KEYS}", "at": f"2026-11-16T00:{n // 40:02d}:{n % 40:02d}Z"}
        # By user: a key's records lie in one partition, and their order is the log's.
        producer.produce("orders", json.dumps(value), partition=n % KEYS % 3)
    assert producer.flush(60) == 0


class Death(Exception):
    """Where a process would have died."""


@pytest.fixture
def doomed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Each sink dies once after its second batch is out, before Spark hears of it; and what it had in hand."""
    deaths: Counter[str] = Counter()
    write, keep = PublishSink.write, BatchState.keep

    def write_and_die(self: PublishSink, frame: Any, query: str, batch: int, attempt: str) -> Written:
        written = write(self, frame, query, batch, attempt)
        if batch == 1 and not deaths["loud"]:
            deaths["loud"] += 1
            raise Death
        return written

    def die_before_keeping(self: BatchState, manifest: Any) -> None:
        if manifest.batch == 1 and not deaths["minutes"]:
            deaths["minutes"] += 1
            raise Death
        keep(self, manifest)

    def die_before_noting(self: Kept, query: str, batch: int, counted: Any) -> Any:
        if batch == 1 and not deaths["users"]:
            deaths["users"] += 1
            raise Death
        return note(self, query, batch, counted)

    note = Kept.note
    monkeypatch.setattr(Kept, "note", die_before_noting)
    monkeypatch.setattr(PublishSink, "write", write_and_die)
    monkeypatch.setattr(BatchState, "keep", die_before_keeping)
    return deaths


def test_each_row_is_published_once_and_in_the_order_of_its_key(
    spark: SparkSession, broker: Broker, doomed: Counter[str], tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("orders", partitions=3)
    produce(servers)
    pipeline = load_text(FILE.format(servers=servers), tmp_path, "shop.yaml", {})
    assert Runner(pipeline, spark, SystemClock(), print, once=True).run() == 0
    assert doomed == {"loud": 1, "minutes": 1, "users": 1}

    found = committed_messages(servers, "loud")
    query = json.loads((pipeline.work / "checkpoints" / "loud" / "metadata").read_text())["id"]
    marks = {tuple(message.headers()[:3]) for message in found}
    ours = (("tidelog.flow", b"loud"), ("tidelog.query", query.encode()))
    assert marks == {(*ours, ("tidelog.batch", b"%d" % batch)) for batch in range(2)}
    by_user: dict[bytes, list[int]] = {}
    for message in found:
        number = json.loads(message.value())["id"]
        assert message.headers()[3:] == [("origin", b"orders"), ("place", str(number % KEYS % 3).encode())]
        by_user.setdefault(message.key(), []).append(number)
    assert by_user == {b"u%d" % u: [n for n in range(RECORDS) if n % KEYS == u and n % 2 == 0] for u in range(KEYS)}
    states = {state.flow: state for state in StateFiles(pipeline.work).read(list(pipeline.flows)).flows}
    assert states["loud"].rows is not None
    check_windows(pipeline, servers)
    check_order_of_windows(servers)
    check_view(servers)
    check_audit(pipeline, spark, query)


def check_view(servers: str) -> None:
    """A record for each key that a batch has changed; a tombstone for one that is gone after it."""
    history: dict[bytes, list[int | None]] = {}
    for message in committed_messages(servers, "users"):
        value = message.value()
        history.setdefault(message.key(), []).append(None if value is None else int(value))
    assert {key: len(values) for key, values in history.items()} == dict.fromkeys((b"u%d" % n for n in range(KEYS)), 2)
    assert {key: values[-1] for key, values in history.items()} == {
        b"u0": 235,
        b"u1": 236,
        b"u2": None,
        b"u3": 238,
        b"u4": 239,
    }


def check_audit(pipeline: Pipeline, spark: SparkSession, query: str) -> None:
    """What is published is proved, and a record that should not be there is found among those of other writers."""
    names = ["loud", "minutes", "users"]
    found = dict(check(pipeline, names, lambda text: None, spark=spark))
    verdicts = {name: one.verdict for name, one in found.items()}
    assert verdicts == dict.fromkeys(names, "balanced"), [one.table() for one in found.values()]
    assert found["users"].as_json()["counts"]["published"] == KEYS - 1
    assert found["loud"].as_json()["counts"]["published"] == RECORDS // 2
    assert found["minutes"].as_json()["counts"]["published"] == 4 * KEYS
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    producer.produce("loud", b"of somebody else", headers=[("tidelog.flow", b"another")])
    marks = [("tidelog.flow", b"loud"), ("tidelog.query", query.encode())]
    producer.produce("loud", b"of a batch that is not done", headers=[*marks, ("tidelog.batch", b"99")])
    assert producer.flush(60) == 0
    ((_, same),) = check(pipeline, ["loud"], lambda text: None, spark=spark)
    assert same.verdict == "balanced"
    producer.produce("loud", b"forged", headers=[*marks, ("tidelog.batch", b"1")])
    assert producer.flush(60) == 0
    ((_, off),) = check(pipeline, ["loud"], lambda text: None, spark=spark)
    assert (off.verdict, off.as_json()["counts"]["too many"]) == ("off", 1)


def check_windows(pipeline: Pipeline, servers: str) -> None:
    """The topic has what the table has, a key for each window."""
    table = pipeline.flows["minutes"].table
    rows: list[dict[str, Any]] = []
    for file in open_table(table.path, table.format).files():
        rows += pq.ParquetFile(file).read(columns=["window_start", "user", "number"]).to_pylist()
    assert len(rows) == 4 * KEYS
    expected = {(f"{row['window_start']:%Y-%m-%dT%H:%M:%S}.000Z", row["user"]): row["number"] for row in rows}
    published = committed_messages(servers, "minutes")
    assert len(published) == len(rows)
    for message in published:
        key, value = json.loads(message.key()), json.loads(message.value())
        assert expected[key["window_start"], key["user"]] == value["number"]
        assert {name: value[name] for name in key} == key
    assert len({message.key() for message in published}) == len(rows)
    topic = ConfigResource(ResourceType.TOPIC, "minutes")
    admin = AdminClient({"bootstrap.servers": servers})
    (config,) = admin.describe_configs([topic]).values()
    assert config.result(60)["cleanup.policy"].value == "compact"


def check_order_of_windows(servers: str) -> None:
    """Several windows of a key close in one batch: a compacted topic must end with the latest."""
    by_user: dict[bytes, list[bytes]] = {}
    for message in committed_messages(servers, "latest"):
        by_user.setdefault(message.key(), []).append(message.value())
    assert {key: len(starts) for key, starts in by_user.items()} == {b"u%d" % n: 4 for n in range(KEYS)}
    assert all(starts == sorted(starts) for starts in by_user.values()), by_user


def test_what_cannot_be_published_is_said_before_anything_starts(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    wrong = FILE.format(servers=broker.bootstrap_servers).replace("key: payload.user", "key: payload.usr")
    wrong = wrong.replace("topic: minutes,", "topic: minutes, value: numbr,")
    with pytest.raises(PipelineError) as caught:
        Runner(load_text(wrong, tmp_path, "shop.yaml", {}), spark, SystemClock(), print, once=True).run()
    assert [fault.path for fault in caught.value.faults] == [("flows", "loud"), ("flows", "minutes")]
    wrong = FILE.format(servers=broker.bootstrap_servers).replace("create: {partitions: 3}", "kafka: {acks: 1}")
    with pytest.raises(PipelineError, match=r"kafka.acks=1: delivery=exactly_once needs all"):
        Runner(load_text(wrong, tmp_path, "shop.yaml", {}), spark, SystemClock(), print, once=True).run()


def test_a_topic_that_the_broker_refuses_gives_the_flow_up(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    text = FILE.format(servers=broker.bootstrap_servers).partition("  loud:")[0].replace("[orders]", "[others]")
    text += "  loud: {kind: publish, from: orders, topic: refused, create: {cleanup.policy: shred}}\n"
    broker.create_topic("others")
    told: list[str] = []
    assert Runner(load_text(text, tmp_path, "s.yaml", {}), spark, SystemClock(), told.append, once=True).run() == 1
    (said,) = [line for line in told if line.startswith("loud: given up")]
    assert "no restart can mend it" in said
    assert "the broker does not create the topic refused" in said
