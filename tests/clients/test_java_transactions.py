"""Transactions of Java's producer, which uses version 2 (KIP-890): a partition is added with its first record, and each
transaction has an epoch of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.clients.adapters.java import Java, JavaConsumer
from tests.clients.adapters.java_transactions import JavaProducer, TransactionAdmin
from tests.clients.matrix import JAVA_MARKS, section
from tests.clients.model import ConsumerOptions, Partition, Refused, read, values, wait_for

pytestmark = [*JAVA_MARKS, section("Transactions")]

INVALID_PRODUCER_EPOCH = 47
TRANSACTIONAL_ID_NOT_FOUND = 105
PRODUCER_FENCED = 90
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

Open = Callable[..., JavaProducer]


@pytest.fixture
def admin(java: Java) -> TransactionAdmin:
    return TransactionAdmin(java.jvm)


@pytest.fixture
def topic(java: Java, name: str) -> str:
    java.create_topic(name, partitions=2)
    return name


@pytest.fixture
def open_producer(java: Java) -> Iterator[Open]:
    """A producer that has its id and epoch, closed with the test."""
    with ExitStack() as stack:

        def open_producer(transactional_id: str, **settings: str) -> JavaProducer:
            producer = JavaProducer(java.jvm, transactional_id, **settings)
            stack.callback(producer.close)
            return producer.init()

        yield open_producer


def reader(java: Java, isolation: str, **options: str) -> JavaConsumer:
    settings = {"isolation.level": isolation}
    settings.update({name.replace("_", "."): value for name, value in options.items()})
    return JavaConsumer(java.jvm, ConsumerOptions(group=settings.pop("group.id", None)), settings)


def seen(java: Java, partition: Partition, isolation: str, count: int) -> list[bytes | None]:
    with closing(reader(java, isolation)) as consumer:
        consumer.assign(partition)
        return values(read(consumer, count))


def end(java: Java, partition: Partition, isolation: str) -> int:
    with closing(reader(java, isolation)) as consumer:
        return consumer.bounds(partition)[1]


def stable_offset(java: Java, group: str, partition: Partition) -> int | None:
    """None while a transaction that has not ended may change it: Java leaves such a partition out."""
    found = java.jvm.call("stable_offsets", group=group, partitions=[partition])
    return int(found[0][2]) if found else None


def offset_after_commit(java: Java, group: str, partition: Partition) -> int:
    """The marker of the transaction may still be on the way."""
    return wait_for("a stable offset", lambda: stable_offset(java, group, partition)) or 0


def test_only_what_is_committed_is_read(java: Java, topic: str, open_producer: Open) -> None:
    producer = open_producer(topic)
    producer.begin()
    assert producer.send((topic, 0), b"a", b"b") == [0, 1]
    producer.send((topic, 1), b"c")
    producer.commit()  # offset 2 is the marker
    producer.begin()
    assert producer.send((topic, 0), b"d") == [3]
    producer.abort()
    producer.begin()
    assert producer.send((topic, 0), b"e") == [5]
    assert seen(java, (topic, 0), UNCOMMITTED, 4) == [b"a", b"b", b"d", b"e"]
    assert seen(java, (topic, 0), COMMITTED, 2) == [b"a", b"b"]
    assert end(java, (topic, 0), COMMITTED) == 5
    assert end(java, (topic, 0), UNCOMMITTED) == 6
    producer.commit()
    assert seen(java, (topic, 0), COMMITTED, 3) == [b"a", b"b", b"e"]
    assert seen(java, (topic, 1), COMMITTED, 1) == [b"c"]
    assert end(java, (topic, 0), COMMITTED) == 7


def test_every_transaction_has_its_own_epoch(topic: str, open_producer: Open, admin: TransactionAdmin) -> None:
    assert admin.features()["transaction.version"] == 2
    producer = open_producer(topic)
    epochs = []
    for commits in (True, False, True):
        producer.begin()
        producer.send((topic, 0), b"x")
        (state,) = admin.producers((topic, 0))
        epochs.append(state["epoch"])
        assert state["last_sequence"] == 0
        producer.commit() if commits else producer.abort()
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]


def test_a_second_producer_fences_the_first(java: Java, topic: str, open_producer: Open) -> None:
    first = open_producer(topic)
    first.begin()
    first.send((topic, 0), b"lost")
    second = open_producer(topic)
    assert end(java, (topic, 0), COMMITTED) == 2  # its transaction was ended: the record and the marker
    for call in (lambda: first.send((topic, 0), b"late"), first.commit):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.code in (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH)
    second.begin()
    second.send((topic, 0), b"kept")
    second.commit()
    assert seen(java, (topic, 0), COMMITTED, 1) == [b"kept"]


def test_a_timeout_above_the_maximum_is_refused(java: Java, name: str) -> None:
    with (
        closing(JavaProducer(java.jvm, name, transaction_timeout_ms="900001")) as producer,
        pytest.raises(RuntimeError, match="transaction timeout is larger than the maximum"),
    ):
        producer.init()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_read_process_write(java: Java, topic: str, open_producer: Open, protocol: str) -> None:
    out, group = (f"{topic}-out", 0), f"{topic}-group"
    java.create_topic(out[0])
    source = open_producer(f"{topic}-source")
    source.begin()
    source.send((topic, 0), *(b"%d" % number for number in range(6)))
    source.commit()
    producer = open_producer(topic)
    with closing(reader(java, COMMITTED, group_id=group, group_protocol=protocol, max_poll_records="2")) as consumer:
        consumer.subscribe(topic)
        aborted = False
        done: list[bytes | None] = []
        while len(done) < 6:
            records = wait_for("records", consumer.poll)
            producer.begin()
            producer.send(out, *(b"<%s>" % (record.value or b"") for record in records))
            offset = (records[-1].offset or 0) + 1
            producer.send_offsets(consumer, {(topic, 0): offset})
            if len(done) == 2 and not aborted:
                producer.abort()
                aborted = True
                assert offset_after_commit(java, group, (topic, 0)) == 2
                consumer.seek((topic, 0), 2)
                continue
            producer.commit()
            done += values(records)
            assert offset_after_commit(java, group, (topic, 0)) == offset
    assert seen(java, out, COMMITTED, 6) == [b"<%d>" % number for number in range(6)]


def test_offsets_are_unstable_until_the_end(java: Java, topic: str, open_producer: Open) -> None:
    producer, group = open_producer(topic), f"{topic}-group"
    with closing(reader(java, COMMITTED, group_id=group)) as consumer:
        producer.begin()
        producer.send_offsets(consumer, {(topic, 0): 7})
        assert java.group_offsets(group) == {}
        assert stable_offset(java, group, (topic, 0)) is None
        producer.commit()
        assert offset_after_commit(java, group, (topic, 0)) == 7


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_member_that_is_gone_are_refused(
    java: Java, topic: str, open_producer: Open, protocol: str
) -> None:
    producer = open_producer(topic)
    with closing(reader(java, COMMITTED, group_id=topic, group_protocol=protocol)) as gone:
        gone.subscribe(topic)
        wait_for("an assignment", lambda: (gone.poll(), gone.assignment())[1])
        java.jvm.call("remember_member", consumer=gone.number)
    producer.begin()
    producer.send((topic, 0), b"x")
    with pytest.raises(RuntimeError, match="CommitFailedException"):
        producer.send_offsets(gone, {(topic, 0): 1}, as_remembered=True)
    producer.abort()
    assert java.group_offsets(topic) == {}
    producer.begin()
    producer.send((topic, 0), b"y")
    producer.commit()
    assert seen(java, (topic, 0), COMMITTED, 1) == [b"y"]


def test_an_administrator_sees_transactions(topic: str, open_producer: Open, admin: TransactionAdmin) -> None:
    producer = open_producer(topic, transaction_timeout_ms="54321")
    before = admin.describe(topic)
    assert (before["state"], before["timeout_ms"], before["started"]) == ("Empty", 54321, False)
    producer.begin()
    producer.send((topic, 1), b"x")
    assert admin.list(["Ongoing"], pattern=f"{topic}.*") == {topic: (before["producer_id"], "Ongoing")}
    assert topic in admin.list() and topic not in admin.list(["Empty"])
    assert topic not in admin.list(duration_ms=3_600_000)
    now = admin.describe(topic)
    assert (now["state"], now["started"], now["partitions"]) == ("Ongoing", True, [[topic, 1]])
    (state,) = admin.producers((topic, 1))
    assert (state["producer_id"], state["epoch"], state["start_offset"]) == (now["producer_id"], now["epoch"], 0)
    assert admin.producers((topic, 0)) == []
    producer.commit()
    assert wait_for("the end", lambda: admin.describe(topic)["state"] == "CompleteCommit")
    (state,) = admin.producers((topic, 1))
    assert state["start_offset"] == -1
    with pytest.raises(Refused) as refused:
        admin.describe("nobody")
    assert refused.value.code == TRANSACTIONAL_ID_NOT_FOUND


def test_an_administrator_ends_a_transaction(
    java: Java, topic: str, open_producer: Open, admin: TransactionAdmin
) -> None:
    producer = open_producer(topic)
    producer.begin()
    producer.send((topic, 0), b"x")
    (state,) = admin.producers((topic, 0))
    admin.abort((topic, 0), state["producer_id"], state["epoch"], 0)
    assert end(java, (topic, 0), COMMITTED) == 2
    assert admin.producers((topic, 0))[0]["start_offset"] == -1


def test_an_administrator_fences_producers(
    java: Java, topic: str, open_producer: Open, admin: TransactionAdmin
) -> None:
    producer = open_producer(topic)
    producer.begin()
    producer.send((topic, 0), b"x")
    admin.fence(topic, f"{topic}-of-nobody-yet")
    assert end(java, (topic, 0), COMMITTED) == 2
    with pytest.raises(Refused) as refused:
        producer.commit()
    assert refused.value.code in (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH)
    assert admin.describe(f"{topic}-of-nobody-yet")["state"] == "Empty"
