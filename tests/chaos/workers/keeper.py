"""Writes and deletes under a few keys of a compacted topic: one by one, or in transactions of which some are
aborted."""

from __future__ import annotations

import os
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.history import Op, Send
from tests.chaos.labels import ID, labelled
from tests.chaos.workers.base import Worker, known_offset
from tests.chaos.workers.transactional import Lost, Transactional

KEYS = 12
TOMBSTONES = 0.25
IN_FLIGHT_MAX = 500
END_S = 60.0


def draw(worker: Worker, number: str) -> tuple[Send, int, dict[str, Any]]:
    """The next send, its partition and its record. A key stays with its partition."""
    index = worker.chance.randrange(KEYS)
    is_tombstone = worker.chance.random() < TOMBSTONES
    partition = index % worker.task.partitions
    send = Send(worker.key(partition), labelled(f"k{index}", number, is_tombstone=is_tombstone))
    record = {
        "key": f"k{index}",
        "value": None if is_tombstone else f"value of {number}",
        "headers": [(ID, number.encode())],
    }
    return send, partition, record


class Keeper(Worker):
    def run(self) -> None:
        config = {"enable.idempotence": True, "linger.ms": 1, "max.in.flight": 5, "message.timeout.ms": 120_000}
        producer = Producer(self.base | config)
        number = 0
        while not self.stopping.is_set():
            if len(producer) < IN_FLIGHT_MAX:
                number += 1
                self._send(producer, f"{self.task.process}:{number}")
            producer.poll(self.task.pause_s)
        producer.flush(END_S)

    def _send(self, producer: Producer, number: str) -> None:
        send, partition, record = draw(self, number)
        op = self.recorder.begin(send)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                send.offset = known_offset(message)
            self.recorder.end(op, "ok" if error is None else "unknown", "" if error is None else error.name())

        producer.produce(self.task.topic, partition=partition, on_delivery=delivered, **record)


class TransactionalKeeper(Transactional):
    def run(self) -> None:
        """One life. Who is fenced ends; another process takes the id."""
        try:
            self.be_born()
            while not self.stopping.is_set():
                self.transaction(self._sends)
                self.rest()
        except Lost as lost:
            self.recorder.end(self.recorder.begin(), "ok", f"lost: {lost}")
        os._exit(0)

    def _sends(self, op: Op) -> None:
        for step in range(self.chance.randint(1, 4)):
            send, partition, record = draw(self, f"{self.task.process}:{op.number}.{step}")
            op.actions.append(send)
            self.recorder.write(op)
            self.send(op, send, self.task.topic, partition, **record)
