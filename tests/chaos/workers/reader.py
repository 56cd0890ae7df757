"""Reads all partitions from their beginnings, by assignment."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.history import Assign, Poll
from tests.chaos.labels import label_of
from tests.chaos.workers.base import Worker


class Reader(Worker):
    def run(self) -> None:
        settings = {"group.id": "readers", "enable.auto.commit": False, "isolation.level": "read_committed"}
        consumer = Consumer(self.base | settings)
        numbers = range(self.task.partitions)
        self.recorder.note(Assign(tuple(self.key(number) for number in numbers)))
        consumer.assign([TopicPartition(self.task.topic, number, 0) for number in numbers])
        while not self.stopping.is_set():
            op = self.recorder.begin()
            for message in consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    key = self.key(message.partition() or 0, message.topic() or "")
                    op.actions.append(Poll(key, label_of(message), message.offset() or 0))
            self.recorder.end(op, "ok")
        consumer.close()
