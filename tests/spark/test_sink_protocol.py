"""The sink's failure table (docs/decisions/0011) without Spark: tasks and drivers that stop at any point, on both
brokers; a reader with read_committed gets every row once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.spark import sinking
from tests.spark.sinking import Died, attempt, attempts, commit, committed_values
from tests.spark.sourcing import Log
from tidelog.client.errors import BrokerError
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce
from tidelog.client.topics import delete_records
from tidelog.client.transactional import Transactions
from tidelog.client.transactions import list_transactions
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch
from tidelog.spark.link import Link
from tidelog.spark.sink.committing import nothing
from tidelog.spark.sink.journal import SinkError
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.task import write_rows
from tidelog.spark.sink.writers import abort, commit_known
from tidelog.testing import Broker
from tools import apache

_numbers = itertools.count(1)
ROWS = list(range(60))
LATER = list(range(100, 130))
TIMES_OUT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
FEW = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}


@pytest.fixture(scope="module", params=["tidelog", pytest.param("apache", marks=pytest.mark.java)])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Brokers that notice soon that a transaction is out of time."""
    if request.param == "tidelog":
        with Broker(TIMES_OUT, process=True) as broker:
            yield Log(broker.bootstrap_servers)
        return
    if missing := apache.why_not():
        pytest.skip(f"no Apache Kafka: {missing}")
    properties = {**TIMES_OUT, **FEW}
    with apache.ApacheKafka(tmp_path_factory.mktemp("apache"), heap="300m", properties=properties) as kafka:
        yield Log(kafka.bootstrap_servers)


class Rig:
    """A topic, and a sink with an id that no other test has."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sink = f"query-{os.getpid()}-{next(_numbers)}"
        self.topic = log.topic(3)

    def options(self, **more: str) -> SinkOptions:
        return sinking.options(self.log.bootstrap, topic=self.topic, **more)

    def attempts(self, run: str, tasks: int, rows: list[int] = ROWS, **more: str) -> list[sinking.Receipt]:
        return attempts(self.options(**more), self.sink, run, rows, tasks)

    def commit(self, epoch: int, receipts: list[sinking.Receipt], die_at: str | None = None) -> None:
        commit(self.options(), self.sink, epoch, receipts, die_at)

    def values(self) -> list[int]:
        return sorted(committed_values(self.log.bootstrap, self.topic))

    def abort_from_outside(self, receipts: list[sinking.Receipt]) -> None:
        """As a broker does it with those that are out of time: aborted, their producers fenced."""
        for name in [receipt.transactional_id for receipt in receipts]:
            self.log.ask(lambda cluster, name=name: Transactions(cluster).abort_left_open(name))  # type: ignore[misc]

    def open_transactions(self) -> list[str]:
        found = self.log.ask(lambda cluster: list_transactions(cluster, ["Ongoing"]))
        return [one.transactional_id for one in found if self.sink in one.transactional_id]


@pytest.fixture
def rig(log: Log) -> Rig:
    return Rig(log)


def test_epochs_follow_each_other(rig: Rig) -> None:
    rig.commit(0, rig.attempts("a", 2))
    rig.commit(1, rig.attempts("a", 3, LATER))
    assert rig.values() == ROWS + LATER


@pytest.mark.parametrize("point", ["before the decision", "decided", "one ended", "all ended"])
def test_a_driver_dies_and_the_epoch_comes_again_split_differently(rig: Rig, point: str) -> None:
    with pytest.raises(Died):
        rig.commit(0, rig.attempts("a", 3), die_at=point)
    rig.commit(0, rig.attempts("b", 2))
    rig.commit(1, rig.attempts("b", 2, LATER))
    assert rig.values() == ROWS + LATER
    assert rig.open_transactions() == [], "readers would wait for them"


def test_a_driver_dies_after_the_sinks_commit_and_before_sparks(rig: Rig) -> None:
    rig.commit(0, rig.attempts("a", 3))
    rig.commit(0, rig.attempts("b", 2))
    assert rig.values() == ROWS


def test_a_transaction_that_times_out_after_the_decision_is_copied_from_the_log(rig: Rig) -> None:
    receipts = rig.attempts("a", 1, kafka__transaction__timeout__ms="6000")
    with pytest.raises(Died):
        rig.commit(0, receipts, die_at="decided")
    while rig.open_transactions():
        pass  # the broker aborts it by itself
    rig.commit(0, rig.attempts("b", 2))
    assert rig.values() == ROWS


@pytest.mark.parametrize("point", ["decided", "one ended"])
def test_what_was_aborted_after_the_decision_is_copied_from_the_log(rig: Rig, point: str) -> None:
    receipts = rig.attempts("a", 3)
    with pytest.raises(Died):
        rig.commit(0, receipts, die_at=point)
    rig.abort_from_outside(receipts)
    rig.commit(0, rig.attempts("b", 2))
    assert rig.values() == ROWS


def test_a_copy_is_not_made_twice(rig: Rig) -> None:
    receipts = rig.attempts("a", 3)
    rig.abort_from_outside(receipts)
    with pytest.raises(Died):
        rig.commit(0, receipts, die_at="copied")
    rig.commit(0, rig.attempts("b", 2))
    assert rig.values() == ROWS


def test_transactions_that_time_out_before_the_decision_are_copied_too(rig: Rig) -> None:
    receipts = rig.attempts("a", 3)
    rig.abort_from_outside(receipts[1:])
    rig.commit(0, receipts)
    rig.commit(1, rig.attempts("a", 2, LATER))
    assert rig.values() == ROWS + LATER


@pytest.mark.parametrize("survived", [0, 1], ids=["the decision", "the copy"])
def test_a_driver_dies_before_it_commits_a_transaction_of_its_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """Its first one is the decision, its second one the copy of what is out of time."""
    receipts = rig.attempts("a", 3)
    rig.abort_from_outside(receipts)
    end = Transactions.end
    ended: list[str] = []

    async def die(self: Transactions, name: str, *arguments: object, **more: bool) -> None:
        if name.endswith(".driver"):
            if len(ended) == survived:
                raise Died("written, not committed")
            ended.append(name)
        await end(self, name, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Transactions, "end", die)
    with pytest.raises(Died):
        rig.commit(0, receipts)
    monkeypatch.undo()
    assert len(ended) == survived
    rig.commit(0, rig.attempts("b", 2))
    assert rig.values() == ROWS


def test_rows_that_are_gone_stop_the_query_with_an_error(rig: Rig) -> None:
    receipts = rig.attempts("a", 1)
    with pytest.raises(Died):
        rig.commit(0, receipts, die_at="decided")
    rig.abort_from_outside(receipts)
    trimmed = {TopicPartition(rig.topic, index): -1 for index in range(3)}
    rig.log.ask(lambda cluster: delete_records(cluster, trimmed))
    again = rig.attempts("b", 1)
    with pytest.raises(SinkError, match=f"of {rig.topic}-0 were decided to be committed"):
        rig.commit(0, again)


def test_an_attempt_that_was_not_chosen_is_aborted(rig: Rig) -> None:
    chosen = rig.attempts("a", 2)
    attempt(rig.options(), rig.sink, "a.1.1", ROWS[1::2])
    assert len(rig.open_transactions()) == 3
    rig.commit(0, chosen)
    assert rig.open_transactions() == []
    assert rig.values() == ROWS


def test_a_zombie_of_a_former_run_cannot_write_any_more(rig: Rig) -> None:
    zombie = rig.attempts("a", 1)[0]
    name, span = zombie.transactional_id, zombie.spans[0]
    rig.commit(0, rig.attempts("b", 2))
    late = build_batch(
        [RecordInput(None, b"666", 0)],
        attributes=TRANSACTIONAL,
        producer_id=zombie.identity.producer_id,
        producer_epoch=zombie.identity.epoch,
        base_sequence=span.records,
    )
    refused = pytest.raises(BrokerError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH")
    with Link(rig.options().kafka) as link:
        with refused:
            link.ask(lambda cluster: produce(cluster, span.at, late, transactional_id=name))
        with refused:
            link.ask(lambda cluster: Transactions(cluster).add(name, zombie.identity, [span.at]))
        with refused:
            link.ask(lambda cluster: Transactions(cluster).end(name, zombie.identity, committed=True))
    assert rig.values() == ROWS


def test_an_epoch_without_rows_still_finishes_the_one_before(rig: Rig) -> None:
    with pytest.raises(Died):
        rig.commit(0, rig.attempts("a", 3), die_at="decided")
    empty = write_rows([], rig.options(), sinking.NAMES, rig.sink, "b.0.0")
    rig.commit(0, [empty])
    rig.commit(1, [empty])
    assert rig.values() == ROWS


def test_a_driver_that_was_replaced_cannot_decide(rig: Rig) -> None:
    """Both have the same epoch in hand; the old one has read that nothing was decided, and is slow."""
    old, new = rig.attempts("a", 2), rig.attempts("b", 2)

    def take_over(step: str) -> None:
        if step == "before the decision":
            rig.commit(0, new)

    with Link(rig.options().kafka) as link:
        committer = sinking.Committer(link, rig.options(), rig.sink, take_over)
        with pytest.raises(SinkError, match="another driver of the sink"):
            committer.commit_epoch(0, old)
    assert rig.values() == ROWS


def test_two_queries_write_to_one_topic(rig: Rig) -> None:
    other = Rig(rig.log)
    other.topic = rig.topic
    first, second = rig.attempts("a", 2), other.attempts("a", 2, LATER)
    rig.commit(0, first)
    assert other.open_transactions(), "another query's are left alone"
    other.commit(0, second)
    assert rig.values() == ROWS + LATER


def test_what_a_process_remembers_of_a_sink_does_not_outlive_another_driver(rig: Rig) -> None:
    """Spark's process for commits lives from epoch to epoch, and keeps what it knows of a query."""
    commit_known(rig.options(), rig.attempts("a", 2), 0, nothing)
    commit_known(rig.options(), rig.attempts("a", 2, LATER), 1, nothing)
    last = list(range(200, 220))
    rig.commit(2, rig.attempts("b", 2, last))
    with pytest.raises(SinkError, match="another driver of the sink"):
        commit_known(rig.options(), rig.attempts("a", 2, last), 2, nothing)
    commit_known(rig.options(), rig.attempts("a", 2, last), 2, nothing)
    assert rig.values() == ROWS + LATER + last
    assert rig.open_transactions() == []


def test_an_epoch_that_spark_gives_up_leaves_nothing_open(rig: Rig) -> None:
    receipts = rig.attempts("a", 2)
    attempt(rig.options(), rig.sink, "a.1.1", ROWS)
    abort(rig.options(), receipts)
    assert rig.open_transactions() == []
    assert rig.values() == []


def test_a_write_that_is_not_repeated_needs_no_decision(rig: Rig) -> None:
    """One of its transactions was aborted before the driver came to it."""
    receipts = rig.attempts("a", 3)
    rig.abort_from_outside(receipts[:1])
    options = rig.options(stateTopic=f"none-{rig.topic}")
    with Link(options.kafka) as link:
        sinking.Committer(link, options, rig.sink).commit_once(receipts)
        assert options.state_topic not in link.topics()
    assert rig.values() == ROWS


def test_batch_writes_of_one_driver_are_committed_by_several_processes(rig: Rig) -> None:
    """Spark takes any of its Python processes for the commit of a batch write: each was the last driver once."""
    commit_known(rig.options(), rig.attempts("a", 2), 0, nothing, moves=True)
    rig.commit(1, rig.attempts("b", 2, LATER))  # in another process
    again = rig.attempts("c", 3, LATER)
    commit_known(rig.options(), again, 1, nothing, moves=True)  # repeated here, where only epoch 0 is known
    assert rig.values() == sorted([*ROWS, *LATER])
    rig.commit(2, rig.attempts("d", 1, [200]))
    commit_known(rig.options(), rig.attempts("e", 1, [300]), 3, nothing, moves=True)
    assert rig.values() == sorted([*ROWS, *LATER, 200, 300])
    rig.commit(4, rig.attempts("f", 1, [400]))
    with pytest.raises(
        SinkError, match="has taken over"
    ):  # of a stream there is one process, and another is another driver
        commit_known(rig.options(), rig.attempts("g", 1, [500]), 5, nothing)
