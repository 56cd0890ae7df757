"""A group changes its protocol while it reads, both ways, with real consumers: no partition ever has two owners."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

from tidelog.testing import Broker

PATIENCE_S = 30


class Members:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.consumers: list[Consumer] = []
        self.owned: dict[int, set[int]] = {}

    def add(self, **config: object) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **config}
        consumer = Consumer(settings)
        number = len(self.owned)
        self.owned[number] = set()

        def assigned(_: Consumer, parts: list[TopicPartition]) -> None:
            new = {part.partition for part in parts}
            others = [own for other, own in self.owned.items() if other != number]
            assert not any(new & own for own in others), (number, new, self.owned)
            self.owned[number] |= new

        def revoked(_: Consumer, parts: list[TopicPartition]) -> None:
            self.owned[number] -= {part.partition for part in parts}

        consumer.subscribe(["t"], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        self.consumers.append(consumer)

    def poll_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self.owned
            for consumer in self.consumers:
                consumer.poll(0.02)

    def shares(self) -> list[int]:
        return sorted(len(own) for own in self.owned.values() if own)


# Not cooperative-sticky: librdkafka keeps data in its assignments then, and such a group is refused.
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_group_becomes_one_of_the_new_protocol_and_a_classic_one_again(strategy: str) -> None:
    with Broker(process=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 6)])["t"].result(PATIENCE_S)

        def described() -> ConsumerGroupDescription:
            return admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)

        members = Members(broker.bootstrap_servers)
        for _ in range(2):
            members.add(**{"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300})
        members.poll_until(lambda: members.shares() == [3, 3])
        members.add(**{"group.protocol": "consumer"})
        members.poll_until(lambda: members.shares() == [2, 2, 2])
        assert (described().type.name, len(described().members)) == ("CONSUMER", 3)
        members.consumers.pop().close()
        members.poll_until(lambda: members.shares() == [3, 3])
        assert described().type.name == "CLASSIC"
        for consumer in members.consumers:
            consumer.close()
