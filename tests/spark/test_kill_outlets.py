"""`kill -9` of a driver, its JVM and all workers, while letters, retries and published rows are on their way: after a
restart each of them is there once, for a reader of committed records.

Every flow is in its second batch, at another moment between two of its writes, when the one death strikes.
"""

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

from tests.spark.doom import Moment, killed
from tests.spark.letter_rig import Rig
from tests.spark.sinking import committed_messages
from tidelog.runtime.clock import SystemClock
from tidelog.spark.lake import open_table
from tidelog.spark.pipeline.checking import check
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters.checkpoints import query_of
from tidelog.spark.pipeline.letters.judging import DEAD, OUTCOME
from tidelog.spark.pipeline.letters.sink import decisions_of
from tidelog.spark.pipeline.runner import Runner
from tidelog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # a start of Spark beside the tests' own; minutes where others work as well

RECORDS = 240
USERS = 5
LETTERS = {  # what is on its way when it dies: the batch has the letters that the one before it has sent to be retried
    "judged": Moment(1, "judged"),
    "decided": Moment(1, "decided"),
    "halfway": Moment(1, "sink: decided"),
    "sent": Moment(1, "sent"),
    "landed": Moment(1, "landed"),
}
OUT = {
    "unseen": Moment(1, "sink: before the decision"),
    "loud": Moment(1, "published"),
    "minutes": Moment(1, "before its state is kept"),
    "users": Moment(1, "before it is noted"),
}
LETTER_FLOW = """\
  NAME:
    kind: ingest
    topics: orders
    decode: {{wire: json, schema: "id BIGINT, amount BIGINT"}}
    dead_letters:
      topic: NAME.dead
      rules: {{positive: "payload.amount > 0"}}
      retry: {{topic: NAME.retry, rules: {{lucky: "rand() < 0.5"}}, delays: [1ms]}}  # asked again, it says otherwise
"""
FILE = """\
name: shop
bootstrap.servers: {servers}
lake: lake
defaults:
  trigger: 100ms
  restart: {{first: 1s, most: 2s, give_up_after: 50}}
flows:
  orders:
    kind: ingest
    topics: [orders]
    max_records: 130
    decode: {{wire: json, schema: "id BIGINT, user STRING, amount BIGINT, at TIMESTAMP"}}
  unseen: {{kind: publish, from: orders, topic: unseen, key: payload.user, value: offset}}
  loud: {{kind: publish, from: orders, topic: loud, key: payload.user, value: offset}}
  minutes:
    kind: aggregate
    from: orders
    time: payload.at
    watermark: 1m
    window: {{tumbling: 1m}}
    measures: {{number: count}}
    publish: {{topic: minutes, create: {{cleanup.policy: compact}}}}
  users:
    kind: view
    from: orders
    key: {{user: payload.user}}
    fold: {{number: count}}
    buckets: 2
    publish: {{topic: users, value: number, create: {{cleanup.policy: compact}}}}
"""


def produce(servers: str) -> None:
    """Half of it is poison for a flow with letters: a quarter is broken, a quarter breaks a rule."""
    producer = Producer({"bootstrap.servers": servers})
    for n in range(RECORDS):
        value = {"id": n, "user": f"u{n % USERS}", "amount": -1 if n % 4 == 2 else 1}
        text = json.dumps({**value, "at": f"2026-11-16T00:{n // 40:02d}:{n % 40:02d}Z"})
        producer.produce("orders", text[: len(text) // 2] if n % 4 == 0 else text, partition=0)
    assert producer.flush(60) == 0


def test_letters_and_published_rows_are_there_once_after_a_kill_in_every_moment(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    rig = Rig(broker, tmp_path, FILE + "".join(LETTER_FLOW.replace("NAME", name) for name in LETTERS))
    broker.create_topic("orders")
    produce(rig.servers)
    moments = LETTERS | OUT
    killed(tmp_path / "doom", rig.pipeline.work, ["pipeline", "run", str(rig.file)], moments)
    for flow in moments:
        assert (commits(rig, flow, "commits"), commits(rig, flow, "offsets")) == (0, 1), f"{flow} died in its second"
    sent = {name: places(rig, f"{name}.retry") for name in LETTERS}
    assert min(len(one) for one in sent.values()) > 0
    decided = {name: unlucky_in(rig, name) for name in LETTERS}
    assert [name for name, unlucky in decided.items() if unlucky is None] == ["judged"]

    assert Runner(rig.pipeline, spark, SystemClock(), rig.told.append, once=True).run() == 0, rig.told
    for name in LETTERS:
        check_letters(rig, name, sent[name], decided[name])
    check_published(rig)
    verdicts = dict(check(rig.pipeline, [], lambda text: None, spark=spark))
    assert set(verdicts) == set(rig.pipeline.flows)
    assert {one.verdict for one in verdicts.values()} == {"balanced"}, [one.table() for one in verdicts.values()]


def commits(rig: Rig, flow: str, kind: str) -> int:
    found = (rig.pipeline.work / "checkpoints" / flow / kind).iterdir()
    return max(int(one.name) for one in found if one.name.isdigit())


def places(rig: Rig, topic: str) -> Counter[tuple[int, str]]:
    """Which records the letters are of, and why."""
    found: Counter[tuple[int, str]] = Counter()
    for _, letter in rig.letters(topic):
        assert letter.origin is not None
        found[letter.origin[2], letter.text(H.REASON)] += 1
    return found


def unlucky_in(rig: Rig, name: str) -> set[int] | None:
    """What the second batch has decided to be dead, as it lies in the work directory; None before it is decided."""
    flow = rig.pipeline.flows[name]
    assert isinstance(flow, Ingest)
    query = query_of(rig.pipeline.work / "checkpoints" / name)
    assert query is not None
    decisions = decisions_of(flow, rig.pipeline, query)
    found = decisions.of(1)
    if found is None:
        return None
    assert found.data is not None
    files = (decisions.home / found.data).glob(f"{OUTCOME}={DEAD}/*.parquet")
    return {offset for file in files for offset in pq.ParquetFile(file).read(["offset"])["offset"].to_pylist()}


def check_letters(rig: Rig, flow: str, sent: Counter[tuple[int, str]], decided: set[int] | None) -> None:
    dead, retries = places(rig, f"{flow}.dead"), places(rig, f"{flow}.retry")
    rows = [row["offset"] for row in rig.rows(flow)]
    assert {*dead.values(), *retries.values()} == {1}, "a letter is there twice"
    assert retries == sent, "what was sent before the kill"
    unlucky = {offset for offset, reason in dead if reason == "lucky"}
    poison = {(n, "decode" if n % 4 == 0 else "positive") for n in range(0, RECORDS, 2)}
    assert set(dead) == poison | {(offset, "lucky") for offset in unlucky}
    assert sorted([*rows, *unlucky]) == list(range(1, RECORDS, 2)), "each that is no poison, once"
    assert unlucky <= {offset for offset, _ in retries}
    assert decided is None or unlucky == decided, "what was decided before the kill"
    balance = rig.balance(flow)
    assert balance == {"lake": len(rows), "dead letters": RECORDS // 2 + len(unlucky), "retrying": 0}


def check_published(rig: Rig) -> None:
    for topic in ("unseen", "loud"):
        by_user: dict[bytes | None, list[int]] = {}
        for message in committed_messages(rig.servers, topic):
            by_user.setdefault(message.key(), []).append(int(message.value()))
        broken = list(range(0, RECORDS, 4))
        assert by_user == {
            None: broken,
            **{b"u%d" % u: [n for n in range(RECORDS) if n % USERS == u and n % 4] for u in range(USERS)},
        }
    windows = Counter(
        (value["window_start"][:16], value["number"])
        for value in (json.loads(message.value()) for message in committed_messages(rig.servers, "minutes"))
    )
    assert windows == Counter({(f"2026-11-16T00:{minute:02d}", 30): 1 for minute in range(4)})
    assert len(landed(rig, "minutes")) == len(windows)
    # Of each key that a batch has changed one record: what the first 130 records came to, and what all of them.
    history: dict[bytes | None, list[int]] = {}
    for message in committed_messages(rig.servers, "users"):
        history.setdefault(message.key(), []).append(int(message.value()))
    ends = (130, RECORDS)
    expected = {
        b"u%d" % u: [len([n for n in range(end) if n % USERS == u and n % 4]) for end in ends] for u in range(USERS)
    }
    assert {key: numbers for key, numbers in history.items() if key is not None} == expected


def landed(rig: Rig, flow: str) -> list[dict[str, Any]]:
    table = rig.pipeline.flows[flow].table
    found: list[dict[str, Any]] = []
    for file in open_table(table.path, table.format).files():
        found += pq.ParquetFile(file).read().to_pylist()
    return found
