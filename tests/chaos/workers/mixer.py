"""Transactions of one to four steps, each a send or a poll, some aborted on purpose. By librdkafka: version 1."""

from __future__ import annotations

import os

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.history import Assign, Op, Poll, Send
from tests.chaos.workers.base import error_of
from tests.chaos.workers.transactional import CALL_S, Lost, Transactional

ABORTS = 0.15


class Mixer(Transactional):
    def run(self) -> None:
        """One life. Who is fenced ends; another process takes the id."""
        consumer = self._consumer()
        try:
            self.be_born()
            while not self.stopping.is_set():
                self._transaction(consumer)
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

    def _transaction(self, consumer: Consumer) -> None:
        op = self.recorder.begin(transactional=True)
        try:
            self.producer.begin_transaction()
            for step in range(self.chance.randint(1, 4)):
                if self.chance.random() < 0.6:
                    self._send(op, step)
                else:
                    self._poll(op, consumer)
            if self.chance.random() < ABORTS:
                # An abort takes messages from librdkafka's queue that were sent and never answered, and their sequence
                # numbers go to the next ones: to a broker those are retries (docs/chaos.md).
                self.producer.flush(CALL_S)
                return self.abort(op, "on purpose")
        except KafkaException as raised:
            error = error_of(raised)
            if error.fatal():
                self.recorder.end(op, "fail", error.name())
                raise Lost(error.name()) from raised
            return self.abort(op, error.name())
        return self.commit(op)

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
