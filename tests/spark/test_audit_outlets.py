"""Records of a real node in several places: what a real client has put into a dead-letter topic counts as the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer

from tests.spark.audit_rig import MemoryTable, landed, produce
from tidelog.spark.audit import Outlet, Report, audit
from tidelog.spark.audit.letters import FLOW, OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC, Letters
from tidelog.spark.link import Link
from tidelog.testing import Broker

BEGIN_MS = 1_790_000_000_000
RECORDS = 40


@pytest.fixture(scope="module")
def link(broker: Broker) -> Iterator[Link]:
    with Link({"bootstrap.servers": broker.bootstrap_servers}) as link:
        yield link


def write_letters(broker: Broker, dead: str, topic: str, offsets: list[int], *, commit: bool, flow: str = "f") -> None:
    """In one transaction, compressed, as a sink would."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"letters-{flow}",
            "compression.type": "zstd",
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for offset in offsets:
        names = {TOPIC: topic, PARTITION: "0", OFFSET: str(offset), TIMESTAMP: str(BEGIN_MS + offset), FLOW: flow}
        headers = [(name, text.encode()) for name, text in {**names, REASON: f"odd by {offset % 3}"}.items()]
        producer.produce(dead, b"poison", headers=headers)
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_lake_and_dead_letters_are_the_log(broker: Broker, link: Link) -> None:
    topic, dead = broker.create_topic(), broker.create_topic(partitions=2)
    produce(broker.bootstrap_servers, topic, [(0, BEGIN_MS + n) for n in range(RECORDS)])
    odd = [n for n in range(RECORDS) if n % 2]
    whole = landed(broker.bootstrap_servers, [(topic, 0)])
    table = whole.without(topic, 0, odd)

    def check(lake: MemoryTable) -> Report:
        return audit(link, [Outlet("lake", lake), Outlet("dead letters", Letters(link, dead, "f"))], [topic])

    write_letters(broker, dead, topic, odd, commit=False)
    write_letters(broker, dead, topic, odd[:3], commit=True, flow="another")
    assert check(table).total("missing") == len(odd), "neither what was aborted nor another flow's letters count"
    write_letters(broker, dead, topic, odd, commit=True)
    report = check(table)
    assert report.balanced, report.table()
    assert report.landed() == {"lake": RECORDS - len(odd), "dead letters": len(odd)}
    assert [window.records for window in report.windows] == [RECORDS], "a letter has the time of its record"
    assert Letters(link, dead, "f").reasons() == {"odd by 0": 7, "odd by 1": 7, "odd by 2": 6}
    # A record in both places, one in neither, one that is a dead letter twice.
    wrong = check(table.without(topic, 0, [4]).plus(*(row for row in whole.held if row.offset == 7)))
    assert [line for line in wrong.table().splitlines() if line.startswith(f"{topic}-0")] == [
        f"{topic}-0: 4 missing (1)",
        f"{topic}-0: 7 doubled (1): 1 lake + 1 dead letters",
    ]
    write_letters(broker, dead, topic, [9], commit=True)
    assert f"{topic}-0: 9 doubled (1): 2 dead letters" in check(table).table()
