"""Producers and consumers of both client libraries that count, one of them killed; a log, and tables that are whole,
that lack rows and that are behind: what the audit says tier by tier, and what `tidelog pipeline check` does with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("yaml")

import pyarrow as pa
from confluent_kafka import Consumer, Producer
from deltalake import write_deltalake
from kafka import KafkaProducer

from tests.spark.audit_rig import MemoryTable, delete_before, landed, transact
from tidelog.audit import confluent, kafka_python
from tidelog.cli.main import main
from tidelog.runtime.clock import SystemClock
from tidelog.spark.audit import Report, audit
from tidelog.spark.audit.tiering import listen, with_tiers
from tidelog.spark.link import At, Link
from tidelog.spark.pipeline import Pipeline, load
from tidelog.testing import Broker

pytestmark = pytest.mark.timeout(400)

WINDOW_MS = 1_000
FIRST_MS = 1_790_000_000_000
"""Times are given to the records: windows that are over without a wait."""

KILLED = """\
import sys, time
from confluent_kafka import Producer
from tidelog.audit.confluent import AuditedProducer
servers, topic, time_ms, window_ms = sys.argv[1:]
producer = AuditedProducer(
    Producer({"bootstrap.servers": servers}), name="killed", host="web-9", topics=[topic], window_ms=int(window_ms)
)
# Its own start, not now: a machine that stands still between the two makes no difference.
time_ms = int(time_ms) or producer._publisher._counting._started_ms
producer.produce(topic, b"last words", timestamp=time_ms)
assert producer.flush(60) == 0
print(time_ms, flush=True)
time.sleep(600)
"""


class Later(SystemClock):
    """All windows of the wall clock are over, too, and who was silent is dead."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 3_600_000


@pytest.fixture(scope="module")
def link(broker: Broker) -> Iterator[Link]:
    with Link({"bootstrap.servers": broker.bootstrap_servers}) as link:
        yield link


def checkout(broker: Broker, *topics: str) -> confluent.AuditedProducer:
    client = Producer({"bootstrap.servers": broker.bootstrap_servers})
    return confluent.AuditedProducer(client, name="checkout", host="web-3", topics=topics, window_ms=WINDOW_MS)


def send(producer: confluent.AuditedProducer, topic: str, counts: Mapping[int, int], partition: int = 0) -> None:
    """So many records in each window, and the batch not in the order of their times."""
    for window in sorted(counts, reverse=True):
        for number in range(counts[window]):
            time_ms = FIRST_MS + window * WINDOW_MS + number
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=time_ms)
    assert producer.flush(60) == 0


def judged(
    link: Link,
    table: MemoryTable,
    topic: str,
    *,
    ends: Mapping[At, int] | None = None,
    starts: Mapping[At, int] | None = None,
) -> Report:
    told = listen(link, Later(), window_ms=WINDOW_MS)
    report = audit(link, table, [topic], ends=ends, starts=starts, window_ms=WINDOW_MS)
    return with_tiers(link, report, told)


def verdicts(report: Report) -> list[str]:
    assert report.tiers is not None
    return [one.verdict for one in report.tiers.windows]


def kill_one(broker: Broker, topic: str, time_ms: int = 0) -> int:
    """A producer that has written a record, and has not told of it; the record's time, its start if none is given."""
    arguments = [broker.bootstrap_servers, topic, str(time_ms), str(WINDOW_MS)]
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        sent_ms = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
    return sent_ms


def wait_for_the_end_of(time_ms: int) -> None:
    """Of the window: nothing else tells it but the clock."""
    while SystemClock().wall_ms() < time_ms + WINDOW_MS:
        time.sleep(0.05)


def test_tiers_balance_lose_lag_and_are_unknown(broker: Broker, link: Link) -> None:
    topic, servers = "sales", broker.bootstrap_servers
    broker.create_topic(topic, partitions=2)
    producer = checkout(broker, topic)
    send(producer, topic, {0: 5, 1: 4})
    python = kafka_python.AuditedProducer(
        KafkaProducer(bootstrap_servers=servers), name="refunds", host="web-3", window_ms=WINDOW_MS
    )
    for number in range(3):
        python.send(topic, b"refund", partition=1, timestamp_ms=FIRST_MS + WINDOW_MS + number)
    python.close()
    assert producer.close() == 0
    client = Consumer({"bootstrap.servers": servers, "group.id": "billing", "auto.offset.reset": "earliest"})
    client.subscribe([topic])
    reader = confluent.AuditedConsumer(
        client, Producer({"bootstrap.servers": servers}), tier="billing", name="b1", window_ms=WINDOW_MS
    )
    read = 0
    while read < 12:
        read += len(reader.consume(12 - read, 10))
    reader.close()

    table = landed(servers, [(topic, 0), (topic, 1)])
    whole = judged(link, table, topic)
    assert whole.tiers is not None and whole.balanced and whole.proved
    assert [one.counts for one in whole.tiers.windows] == [
        {"producer": 5, "log": 5, "billing": 5, "lake": 5},
        {"producer": 7, "log": 7, "billing": 7, "lake": 7},
    ]
    assert verdicts(whole) == ["balanced", "balanced"]
    assert "sales  2026-09-21T14:13:21Z  7         7    7        7     balanced" in whole.table()

    lossy = judged(link, table.without(topic, 1, [2]), topic)
    assert verdicts(lossy) == ["balanced", "off"] and not lossy.balanced
    assert lossy.tiers is not None
    assert lossy.tiers.windows[1].reasons == ("the lake has 1 fewer than the log's that it claims",)

    # The flow has landed offsets 0 to 5 of partition 0 (windows are 1, 1, 1, 1, 0, 0, ...) and nothing of the other.
    rows = MemoryTable(row for row in table.held if row.partition == 0 and row.offset < 6)
    behind = judged(link, rows, topic, ends={(topic, 0): 6})
    assert behind.balanced, behind.table()
    assert behind.tiers is not None and verdicts(behind) == ["open", "open"]
    assert [one.reasons for one in behind.tiers.windows] == [
        ("lake has not come to 3 records yet",),
        ("lake has not come to 3 records yet",),
    ]
    # Behind, and one of those that it claims is lost: that is not lag.
    both = judged(link, rows.without(topic, 0, [5]), topic, ends={(topic, 0): 6})
    assert verdicts(both) == ["off", "open"] and not both.balanced

    # What nobody counted, and what the reader has not come to.
    plain = Producer({"bootstrap.servers": servers})
    plain.produce(topic, b"uncounted", partition=0, timestamp=FIRST_MS)
    assert plain.flush(60) == 0
    more = judged(link, landed(servers, [(topic, 0), (topic, 1)]), topic)
    assert more.tiers is not None and verdicts(more) == ["unknown", "balanced"], "before the first one counted"

    # A producer that was killed: in its window, and for a late record as well.
    producer = checkout(broker, topic)
    producer.close()
    kill_one(broker, topic, FIRST_MS + WINDOW_MS)
    dead = judged(link, landed(servers, [(topic, 0), (topic, 1)]), topic)
    assert dead.tiers is not None and dead.balanced and not dead.proved
    assert verdicts(dead) == ["unknown", "unknown"]
    assert "killed on web-9 ended without telling all" in dead.tiers.windows[1].reasons[0]


def test_a_log_that_lost_its_beginning_leaves_unknown_and_a_flow_owes_nothing_of_before_it_began(
    broker: Broker, link: Link
) -> None:
    topic, servers = "history", broker.bootstrap_servers
    broker.create_topic(topic)
    producer = checkout(broker, topic)
    for window in range(3):
        send(producer, topic, {window: 4})
    producer.close()
    table = landed(servers, [(topic, 0)])
    began = MemoryTable(row for row in table.held if row.offset >= 6)
    late = judged(link, began, topic, starts={(topic, 0): 6})
    assert late.tiers is not None and verdicts(late) == ["balanced", "balanced", "balanced"]
    assert [one.reasons for one in late.tiers.windows] == [
        ("4 records from before lake began",),
        ("2 records from before lake began",),
        (),
    ]
    delete_before(servers, topic, 0, 5)
    cut = judged(link, table, topic)
    assert cut.tiers is not None and cut.balanced and not cut.proved
    assert verdicts(cut) == ["unknown", "unknown", "balanced"]
    assert cut.tiers.windows[1].reasons == ("the log has 1 fewer than the producers: history-0 has lost all before 5",)


def test_without_an_audit_topic_all_is_unknown(spark_free_broker: Broker) -> None:
    servers = spark_free_broker.bootstrap_servers
    transact(servers, "silent", "t", [(3, True)])
    with Link({"bootstrap.servers": servers}) as link:
        report = judged(link, landed(servers, [("silent", 0)]), "silent")
    assert report.tiers is not None and report.balanced and not report.proved
    assert report.tiers.notes == ["there is no topic tidelog-audit: nobody has told anything"]
    assert report.tiers.windows[0].reasons == ("no producer counts for the topic",)


@pytest.fixture
def spark_free_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def land(pipeline: Pipeline, flow: str, table: MemoryTable, ends: Mapping[str, int]) -> None:
    """What a flow leaves behind, without a session: a table of rows, and a checkpoint that claims them."""
    write_deltalake(pipeline.flows[flow].table.path, pa.Table.from_batches(table.rows()))
    for name, text in (
        ("offsets", f"v1\n{{}}\n{json.dumps({t: {'0': end} for t, end in ends.items()})}"),
        ("commits", "v1\n{}"),
    ):
        folder = pipeline.work / "checkpoints" / flow / name
        folder.mkdir(parents=True)
        (folder / "0").write_text(text)


def test_check_of_a_pipeline_prints_the_tiers_and_fails_by_them(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f"""\
name: shop
bootstrap.servers: {broker.bootstrap_servers}
lake: lake
audit: {{window: {WINDOW_MS}ms}}
flows:
  shop: {{kind: ingest, topics: [orders, payments]}}
""")
    broker.create_topic("orders")
    broker.create_topic("payments")
    producer = checkout(broker, "orders")
    send(producer, "orders", {0: 3, 1: 2})
    table = landed(broker.bootstrap_servers, [("orders", 0)])
    land(load(str(file)), "shop", table, {"orders": 5, "payments": 0})
    send(producer, "orders", {1: 1, 2: 4})
    producer.close()

    def check(*options: str) -> tuple[int, str]:
        code = main(["pipeline", "check", str(file), *options])
        return code, capsys.readouterr().out

    code, out = check("--strict")
    assert code == 0, out
    assert out.rstrip().splitlines()[-10:-3] == [
        "orders  2026-09-21T14:13:20Z  3         3    3     balanced",
        "orders  2026-09-21T14:13:21Z  3         3    2     open",
        "orders  2026-09-21T14:13:22Z  4         4    0     open",
        "",
        "orders 2026-09-21T14:13:21Z: open: lake has not come to 1 record yet",
        "orders 2026-09-21T14:13:22Z: open: lake has not come to 4 records yet",
        "",
    ]
    # The window in which a producer is killed: nothing is wrong, and nothing is proved.
    wait_for_the_end_of(kill_one(broker, "payments"))
    code, out = check("--json")
    tiers = json.loads(out)["flows"]["shop"]["tiers"]
    assert code == 0 and tiers["verdicts"] == {"balanced": 1, "off": 0, "unknown": 1, "open": 2}, out
    assert tiers["windows"][-1]["reasons"] == ["producer killed on web-9 has not told of it"]
    assert check("--strict")[0] == 1
    # One that nobody counted, in a window of its own.
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
    now_ms = SystemClock().wall_ms()
    plain.produce("orders", b"uncounted", timestamp=now_ms)
    assert plain.flush(60) == 0
    wait_for_the_end_of(now_ms)
    code, out = check("--json")
    tiers = json.loads(out)["flows"]["shop"]["tiers"]
    assert code == 1 and tiers["verdicts"] == {"balanced": 1, "off": 1, "unknown": 1, "open": 2}, out
    assert tiers["windows"][3]["reasons"] == ["the log has 1 more than the producers"]
