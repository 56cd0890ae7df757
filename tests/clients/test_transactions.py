"""Transactions with real clients: librdkafka, kafka-python and aiokafka speak version 1, Java version 2."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.clients.adapters.transactional import transactional
from tests.clients.matrix import feature, section
from tests.clients.model import Client, ConsumerOptions, Partition, Refused, read, values, wait_for

pytestmark = section("Transactions")

FENCED = {90, 47}
"""PRODUCER_FENCED, and INVALID_PRODUCER_EPOCH where a library passes on what old versions are told."""


def read_from(client: Client, partition: Partition, count: int, *, committed: bool) -> list[bytes | None]:
    consumer = client.consumer(ConsumerOptions(committed=committed))
    consumer.assign(partition)
    try:
        return values(read(consumer, count))
    finally:
        consumer.close()


@feature("commit, abort and readers of committed records")
def test_committed_records_are_read_and_aborted_ones_are_not(client: Client, topic: str) -> None:
    at = (topic, 0)
    producer = transactional(client, f"id of {topic}")
    for number in range(6):
        producer.begin()
        producer.send(at, [b"%d a" % number, b"%d b" % number])
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    producer.close()
    kept = [b"%d %s" % (number, name) for number in (0, 2, 4) for name in (b"a", b"b")]
    assert read_from(client, at, len(kept), committed=True) == kept
    everything = [b"%d %s" % (number, name) for number in range(6) for name in (b"a", b"b")]
    assert read_from(client, at, len(everything), committed=False) == everything


@feature("a transaction over many partitions")
def test_a_transaction_over_many_partitions(client: Client, topic: str) -> None:
    client.create_partitions(topic, 3)
    producer = transactional(client, f"id of {topic}")
    for outcome in (producer.abort, producer.commit):
        producer.begin()
        for index in range(3):
            producer.send((topic, index), [b"%d %s" % (index, outcome.__name__.encode())])
        outcome()
    producer.close()
    for index in range(3):
        assert read_from(client, (topic, index), 1, committed=True) == [b"%d commit" % index]


@feature("a zombie is fenced")
def test_a_zombie_is_fenced(client: Client, topic: str) -> None:
    at = (topic, 0)
    zombie = transactional(client, f"id of {topic}")
    zombie.begin()
    zombie.send(at, [b"of the zombie"])
    successor = transactional(client, f"id of {topic}")
    successor.begin()
    successor.send(at, [b"of its successor"])
    successor.commit()
    with pytest.raises(Refused) as refused:
        zombie.commit()
    assert refused.value.code in FENCED
    with suppress(Exception):  # a producer that is fenced cannot close in peace everywhere
        zombie.close()
    successor.close()
    assert read_from(client, at, 1, committed=True) == [b"of its successor"]


@feature("offsets of a group in a transaction")
def test_offsets_are_committed_with_the_transaction(client: Client, topic: str) -> None:
    at, group = (topic, 0), f"group of {topic}"
    consumer = client.consumer(ConsumerOptions(group=group, committed=True))
    consumer.subscribe(topic)
    producer = transactional(client, f"id of {topic}")
    producer.begin()
    producer.send(at, [b"one", b"two"])
    producer.commit()
    assert values(read(consumer, 2)) == [b"one", b"two"]
    producer.begin()
    producer.send_offsets({at: 1}, group, consumer)
    producer.abort()
    assert at not in client.group_offsets(group)
    producer.begin()
    producer.send_offsets({at: 2}, group, consumer)
    producer.commit()
    # EndTxn is answered when it is decided; the offsets are there when the marker is.
    wait_for("the offset of the transaction", lambda: client.group_offsets(group).get(at) == 2)
    producer.close()
    consumer.close()
