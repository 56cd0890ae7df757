"""The audit of a real node's log against what another client has read of it, with losses and duplicates planted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.spark.audit_rig import MemoryTable, Row, delete_before, delete_topic, landed, produce, transact
from tidelog.spark.audit import Report, Span, audit
from tidelog.spark.link import Link
from tidelog.spark.pump import Chunk
from tidelog.testing import Broker

HOUR_MS = 3_600_000
BEGIN_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS


@pytest.fixture(scope="module")
def link(broker: Broker) -> Iterator[Link]:
    with Link({"bootstrap.servers": broker.bootstrap_servers}) as link:
        yield link


def faults(report: Report) -> dict[str, list[tuple[int, int, int]]]:
    """(partition, first, last) of each."""
    return {
        fault: [(span.partition, span.first, span.last) for span in spans]
        for fault, spans in (("missing", report.missing), ("doubled", report.doubled), ("surplus", report.surplus))
        if spans
    }


def test_aborted_records_and_markers_are_no_records(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic(partitions=2)
    other = broker.create_topic()
    transact(bootstrap, topic, "a", [(10, True), (5, False), (7, True)])
    produce(bootstrap, topic, [(0, BEGIN_MS)] * 20 + [(1, BEGIN_MS)] * 9)
    transact(bootstrap, topic, "b", [(4, False), (1, True)])
    produce(bootstrap, other, [(0, BEGIN_MS + HOUR_MS)] * 30)
    places = [(topic, 0), (topic, 1), (other, 0)]
    table = landed(bootstrap, places)
    report = audit(link, table, [topic, other])
    assert report.balanced, report.table()
    # 10 + marker, 5 + marker, 7 + marker, 20, 4 + marker, 1 + marker
    assert [one.tally.records for one in report.partitions if one.tally.topic == topic] == [38, 9]
    assert report.total("records") == report.total("rows") == len(table.held) == 77
    assert report.summary().startswith("balanced: 77 records of 2 topics in the table once each")

    # The first transaction takes 0 to 9 and its marker 10, the aborted one 11 to 15.
    bad = table.without(topic, 0, [2, 3, 4, 20]).with_again(topic, 0, [8, 9]).with_again(topic, 1, [5], copies=2)
    bad = bad.plus(Row(topic, 0, 12, BEGIN_MS), Row(topic, 0, 10, BEGIN_MS)).without(other, 0, [29])
    report = audit(link, bad, [topic, other])
    assert not report.balanced
    assert report.missing == [
        Span(topic, 0, 2, 4, 0),
        Span(topic, 0, 20, 20, 0),
        Span(other, 0, 29, 29, 0),
    ] or report.missing == [Span(other, 0, 29, 29, 0), Span(topic, 0, 2, 4, 0), Span(topic, 0, 20, 20, 0)]
    assert report.doubled == [Span(topic, 0, 8, 9, 2), Span(topic, 1, 5, 5, 3)]
    assert report.surplus == [Span(topic, 0, 10, 10, 1), Span(topic, 0, 12, 12, 1)]
    shown = report.table()
    for line in (
        f"{topic}-0: 2..4 missing (3)",
        f"{topic}-0: 20 missing (1)",
        f"{topic}-0: 8..9 doubled (2)",
        f"{topic}-1: 5 doubled (2, 3 rows each)",
        f"{topic}-0: 12 surplus (1)",
    ):
        assert line in shown.splitlines()
    assert "does not balance: 5 missing, 4 doubled, 2 surplus" in shown


def test_a_reader_of_uncommitted_records_has_the_aborted_ones(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    transact(bootstrap, topic, "u", [(3, True), (5, False)])
    table = landed(bootstrap, [(topic, 0)], "read_uncommitted")
    assert len(table.held) == 8
    assert audit(link, table, [topic], isolation="read_uncommitted").balanced
    assert faults(audit(link, table, [topic])) == {"surplus": [(0, 4, 8)]}


def test_an_open_transaction_is_not_judged(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    produce(bootstrap, topic, [(0, BEGIN_MS)] * 5)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(30) == 0
    produce(bootstrap, topic, [(0, BEGIN_MS)] * 5)
    table = landed(bootstrap, [(topic, 0)])
    report = audit(link, table, [topic])
    assert report.balanced and report.total("records") == 5
    # Someone who landed it too early is not judged either: the log has it, behind what is audited.
    early = table.plus(Row(topic, 0, 5, BEGIN_MS))
    report = audit(link, early, [topic])
    assert report.balanced and report.total("outside") == 1
    producer.abort_transaction(30)
    assert faults(audit(link, early, [topic])) == {"missing": [(0, 6, 10)], "surplus": [(0, 5, 5)]}


def test_what_a_flow_has_not_claimed_is_behind_and_not_lost(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic(partitions=2)
    produce(bootstrap, topic, [(0, BEGIN_MS)] * 50 + [(1, BEGIN_MS)] * 10)
    # It has claimed 0 to 29 of one partition, has written the next batch too, and does not know the other partition.
    table = MemoryTable(Row(topic, 0, offset, BEGIN_MS) for offset in range(40))
    ends = {(topic, 0): 30}
    report = audit(link, table, [topic], ends=ends)
    assert report.balanced, report.table()
    first, second = report.partitions
    assert (first.tally.records, first.tally.outside, second.tally.records) == (30, 10, 0)
    assert report.table().splitlines()[1].split() == [topic, "0", "0..29", "20", "30", "30", "0", "0", "0"]
    assert f"{topic}-0: not judged: 10 rows outside of the audited offsets" in report.table()
    assert faults(audit(link, table, [topic])) == {"missing": [(0, 40, 49), (1, 0, 9)]}
    assert faults(audit(link, table.without(topic, 0, [29]), [topic], ends=ends)) == {"missing": [(0, 29, 29)]}
    # A flow that began later owes nothing of before.
    late = MemoryTable(Row(topic, 0, offset, BEGIN_MS) for offset in range(20, 30))
    assert audit(link, late, [topic], starts={(topic, 0): 20}, ends=ends).balanced
    assert faults(audit(link, late, [topic], ends=ends)) == {"missing": [(0, 0, 19)]}
    # It has landed more than the log has: the log was cut, or is another one.
    assert audit(link, table, [topic], ends={(topic, 0): 50}).total("missing") == 10
    assert not audit(link, landed(bootstrap, [(topic, 0)]), [topic], ends={(topic, 0): 51}).balanced
    # The log never had these.
    assert faults(audit(link, table.plus(Row(topic, 0, 50, BEGIN_MS)), [topic], ends=ends)) == {
        "surplus": [(0, 50, 50)]
    }


def test_what_retention_deleted_is_told_apart(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    produce(bootstrap, topic, [(0, BEGIN_MS + number * 60_000) for number in range(100)])
    table = landed(bootstrap, [(topic, 0)])
    # In the middle of a batch, as a user may ask.
    delete_before(bootstrap, topic, 0, 37)
    report = audit(link, table, [topic])
    assert report.balanced, report.table()
    assert (report.total("records"), report.total("deleted")) == (63, 37)
    assert f"{topic}-0: not judged: 37 rows before the log's start" in report.table()
    assert audit(link, table.without(topic, 0, range(30)), [topic]).balanced
    bad = table.without(topic, 0, [36, 37]).with_again(topic, 0, [5])
    assert faults(audit(link, bad, [topic])) == {"missing": [(0, 37, 37)], "doubled": [(0, 5, 5)]}


class Overtaken(Link):
    """Retention deletes up to an offset after the first chunk was fetched."""

    def __init__(self, bootstrap: str, topic: str, before: int) -> None:
        super().__init__({"bootstrap.servers": bootstrap, "max.partition.fetch.bytes": "200"})
        self._deletion = (bootstrap, topic, 0, before)
        self._is_due = True

    def fetch(self, *args: object, **options: object) -> Iterator[Chunk]:  # type: ignore[override]
        for chunk in super().fetch(*args, **options):  # type: ignore[arg-type]
            if self._is_due:
                self._is_due = False
                delete_before(*self._deletion)
            yield chunk


def test_retention_that_overtakes_the_audit_itself_takes_from_its_scope(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    produce(bootstrap, topic, [(0, BEGIN_MS + number) for number in range(60)], **{"batch.num.messages": 1})
    table = landed(bootstrap, [(topic, 0)]).without(topic, 0, [0, 30, 59])
    with Overtaken(bootstrap, topic, 40) as link:
        report = audit(link, table, [topic])
    (one,) = report.partitions
    (begin, stop), (resumed, end) = one.log.scope.pairs()
    assert begin == 0 and stop < 30 and (resumed, end) == (40, 60)
    assert faults(report) == {"missing": [(0, 0, 0), (0, 59, 59)]}
    assert one.tally.records == stop + 20
    assert one.tally.deleted == 40 - stop - 1, "30 is not in the table, and nobody can say whether it was in the log"


def test_batches_across_the_bound_of_a_window_are_decoded(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    times = [BEGIN_MS + minutes * 60_000 for minutes in (10, 50, 59, 61, 125)]
    produce(bootstrap, topic, [(0, time) for time in times])
    produce(bootstrap, topic, [(0, BEGIN_MS + 30 * 60_000)] * 4)
    table = landed(bootstrap, [(topic, 0)])
    report = audit(link, table, [topic])
    assert report.balanced, report.table()
    assert [one.begin_ms - BEGIN_MS for one in report.windows] == [0, HOUR_MS, 2 * HOUR_MS]
    assert [one.records for one in report.windows] == [7, 1, 1]
    log = report.partitions[0].log
    assert (log.batches, log.decoded) == (2, 1)


def test_a_record_older_than_the_first_of_its_batch_costs_a_second_reading(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    # First and greatest time are in the second hour; the header does not show the one in between.
    produce(bootstrap, topic, [(0, BEGIN_MS + minutes * 60_000) for minutes in (70, 20, 80)])
    table = landed(bootstrap, [(topic, 0)])
    report = audit(link, table, [topic])
    assert report.balanced, report.table()
    assert [(one.begin_ms - BEGIN_MS, one.records) for one in report.windows] == [(0, 1), (HOUR_MS, 2)]
    # The same offsets with another time: no loss, but not what the log has.
    moved = MemoryTable(row._replace(time_ms=row.time_ms + HOUR_MS) for row in table.held)
    report = audit(link, moved, [topic])
    assert not report.balanced and not faults(report)
    assert report.summary() == "does not balance: 3 windows of 3 off"


def test_the_brokers_time_is_one_for_a_batch(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, topic, [(0, BEGIN_MS + number * HOUR_MS) for number in range(5)])
    table = landed(bootstrap, [(topic, 0)])
    report = audit(link, table, [topic])
    assert report.balanced, report.table()
    assert len(report.windows) == 1 and report.partitions[0].log.decoded == 0


def test_a_topic_that_was_created_anew_is_unknown_or_told_apart(broker: Broker, link: Link) -> None:
    bootstrap = broker.bootstrap_servers
    topic = broker.create_topic()
    produce(bootstrap, topic, [(0, BEGIN_MS + number) for number in range(20)])
    first_life = landed(bootstrap, [(topic, 0)])
    ids = link.topic_ids([topic])
    assert audit(link, first_life, [topic], topic_ids=ids).balanced
    delete_topic(bootstrap, topic)
    report = audit(link, first_life, [topic], topic_ids=ids)
    assert report.unknown == {topic: "the log has no such topic"} and not report.balanced
    broker.create_topic(topic)
    produce(bootstrap, topic, [(0, BEGIN_MS + 1000 + number) for number in range(10)])
    report = audit(link, first_life, [topic], topic_ids=ids)
    assert list(report.unknown) == [topic] and "created again" in report.table()
    assert not report.balanced and not report.partitions

    # A flow that has gone on with the new one has both in its table.
    both = MemoryTable([*first_life.held, *landed(bootstrap, [(topic, 0)]).held])
    now = link.topic_ids([topic])
    report = audit(link, both, [topic], topic_ids=now, created_anew={topic})
    assert report.balanced, report.table()
    assert report.partitions[0].earlier == 20
    # Where nobody says so, two rows with one offset are two rows with one offset.
    assert faults(audit(link, both, [topic], topic_ids=now)) == {"doubled": [(0, 0, 9)], "surplus": [(0, 10, 19)]}
    # The row of the first life must not hide that the record of the second is missing.
    lossy = MemoryTable(row for row in both.held if row.time_ms != BEGIN_MS + 1003)
    assert faults(audit(link, lossy, [topic], created_anew={topic})) == {"missing": [(0, 3, 3)]}
