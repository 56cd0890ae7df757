"""Transactions of one to four steps, each a send or a poll, some aborted on purpose. By librdkafka: version 1."""

from __future__ import annotations

import os
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from tests.chaos.history import Assign, Op, Poll, Send
from tests.chaos.workers.transactional import Lost, Transactional


class Mixer(Transactional):
    def run(self) -> None:
        """One life. Who is fenced ends; another process takes the id."""
        consumer = self._consumer()
        try:
            self.be_born()
            while not self.stopping.is_set():
                self.transaction(partial(self._steps, consumer))
                self.rest()
        except Lost as lost:
            self.recorder.end(self.recorder.begin(), "ok", f"lost: {lost}")
        # Closing may wait for a broker that is not there; nothing of it matters any more.
        os._exit(0)

    def _consumer(self) -> Consumer:
        settings = {"group.id": "mixers", "enable.auto.commit": False, "isolation.level": "read_committed"}
        consumer = Consumer(self.base | settings)
        numbers = range(self.task.partitions)
        self.recorder.note(Assign(tuple(self.key(number) for number in numbers)))
        consumer.assign([TopicPartition(self.task.topic, number, 0) for number in numbers])
        return consumer

    def _steps(self, consumer: Consumer, op: Op) -> None:
        for step in range(self.chance.randint(1, 4)):
            if self.chance.random() < 0.6:
                self._send(op, step)
            else:
                self._poll(op, consumer)

    def _send(self, op: Op, step: int) -> None:
        partition = self.chance.randrange(self.task.partitions)
        send = Send(self.key(partition), f"{self.task.process}:{op.number}.{step}")
        op.actions.append(send)
        self.recorder.write(op)
        self.send(op, send, self.task.topic, partition)

    def _poll(self, op: Op, consumer: Consumer) -> None:
        for message in consumer.consume(20, timeout=0.02):
            if message.error() is None:
                value = (message.value() or b"").decode()
                op.actions.append(Poll(self.key(message.partition() or 0), value, message.offset() or 0))
        self.recorder.write(op)
