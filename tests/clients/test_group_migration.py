"""A group changes its protocol while it reads, both ways, with real consumers: no partition ever has two owners."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

PATIENCE_S = 30
ONE_GENERATION = {"group.initial.rebalance.delay.ms": "3000"}
"""Both classic members join at once: librdkafka's cooperative-sticky keeps data in its assignments from the second
generation on, and such a group is not migrated."""


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


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_becomes_one_of_the_new_protocol_and_a_classic_one_again(strategy: str) -> None:
    with Broker(ONE_GENERATION, process=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 6)])["t"].result(PATIENCE_S)

        def described() -> ConsumerGroupDescription:
            return admin.describe_consumer_groups(["g"])["g"].result(PATIENCE_S)

        # The first question makes the internal topic: no member shall wait for it while the other has joined.
        with Wire(broker.bootstrap_servers) as wire:
            find = FindCoordinatorRequest(coordinator_keys=["g"])
            assert wire.call(find, 4, FindCoordinatorResponse).coordinators[0].error_code == ErrorCode.NONE
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


def test_a_group_whose_assignor_keeps_data_in_its_assignments_stays_as_it_is() -> None:
    """As in Apache Kafka: tests/scenarios/consumer_group_scenes.py."""
    with Broker(process=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 6)])["t"].result(PATIENCE_S)
        members = Members(broker.bootstrap_servers)
        for shares in ([6], [3, 3]):
            members.add(**{"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300})
            members.poll_until(lambda shares=shares: members.shares() == shares)
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        with Wire(broker.bootstrap_servers) as wire:
            refused = wire.call(request, 1, ConsumerGroupHeartbeatResponse)
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "keeps data in the assignments" in (refused.error_message or "")
        for consumer in members.consumers:
            consumer.close()
