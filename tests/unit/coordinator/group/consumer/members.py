"""Consumers of the new protocol over a coordinator in memory: each keeps what it was told, as a client does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.unit.coordinator.fakes import World
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

GROUP = "g"
Parts = set[tuple[str, int]]
REQUEST_PARTS = ConsumerGroupHeartbeatRequest.TopicPartitions


def send(world: World, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
    answers: list[ConsumerGroupHeartbeatResponse] = []
    world.groups.consumer_heartbeat(request, version, Client("client", "/127.0.0.1"), answers.append)
    world.settle()
    assert len(answers) == 1
    return answers[0]


def group_of(world: World) -> ConsumerGroup:
    group = world.machine.consumers.get(GROUP)
    assert group is not None
    return group


@dataclass
class Consumer:
    """Takes what it is given at its next heartbeat, and gives up what it must."""

    world: World
    member_id: str
    topics: list[str] | None = field(default_factory=lambda: ["t"])
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    owned: Parts = field(default_factory=set)
    interval_ms: int = 0
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def join(self) -> Consumer:
        self.epoch, self.owned = 0, set()
        return self.take(self.full())

    def full(self) -> ConsumerGroupHeartbeatResponse:
        return send(
            self.world,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            topic_partitions=self.parts(),
        )

    def beat(self, *, tells: bool = True) -> Consumer:
        """A heartbeat; `tells` what it owns, as clients do after that has changed."""
        response = send(
            self.world,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topic_partitions=self.parts() if tells else None,
        )
        return self.take(response)

    def leave(self, epoch: int = -1) -> Consumer:
        response = send(self.world, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id)
        self.error, self.epoch, self.owned = ErrorCode(response.error_code), 0, set()
        return self

    def take(self, response: ConsumerGroupHeartbeatResponse) -> Consumer:
        self.error, self.message = ErrorCode(response.error_code), response.error_message
        if self.error is ErrorCode.NONE:
            self.epoch, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
            if response.assignment is not None:
                self.owned = {
                    (self.world.topics.topic_name(part.topic_id) or "", partition)
                    for part in response.assignment.topic_partitions
                    for partition in part.partitions
                }
        return self

    def parts(self) -> list[REQUEST_PARTS]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            by_topic.setdefault(topic, []).append(partition)
        return [
            REQUEST_PARTS(topic_id=self.world.topics.topic_id(topic) or b"", partitions=partitions)
            for topic, partitions in by_topic.items()
        ]

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for _, partition in self.owned)


def settle(*consumers: Consumer, rounds: int = 6) -> None:
    """Everybody comes again and again until nothing changes any more."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
            consumer.world.advance(100)
