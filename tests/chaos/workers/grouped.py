"""A consumer of librdkafka in a group, which records what it is given and gives up."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.history import Disown, Own, Subscribe
from tests.chaos.workers.base import MEMBER_SESSION_MS, Task, Worker


def group_settings(task: Task) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "group.id": task.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    if task.assignor == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {
            "partition.assignment.strategy": task.assignor,
            "session.timeout.ms": MEMBER_SESSION_MS,
            "heartbeat.interval.ms": 500,
        }
    if task.instance:
        settings["group.instance.id"] = task.instance
    return settings


class Grouped(Worker):
    consumer: Consumer

    def join(self) -> None:
        self.recorder.note(Subscribe(self.task.group))
        self.consumer = Consumer(self.base | group_settings(self.task))
        self.consumer.subscribe(
            [self.task.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _keys(self, places: list[TopicPartition]) -> tuple[str, ...]:
        return tuple(self.key(place.partition, place.topic) for place in places)

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        if places:
            self.recorder.note(Own(self.task.group, self._keys(places), self.task.instance))

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        if places:
            self.recorder.note(Disown(self.task.group, self._keys(places)))
