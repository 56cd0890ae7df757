"""Idempotent sends of librdkafka, five requests in flight. Each send is an operation."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.history import Op, Send
from tests.chaos.workers.base import Worker, known_offset

IN_FLIGHT_MAX = 2000
END_S = 60.0


class Sender(Worker):
    def run(self) -> None:
        config = {"enable.idempotence": True, "linger.ms": 1, "max.in.flight": 5, "message.timeout.ms": 120_000}
        producer = Producer(self.base | config)
        number = 0
        while not self.stopping.is_set():
            for partition in range(self.task.partitions):
                if len(producer) < IN_FLIGHT_MAX:
                    self._send(producer, partition, f"{self.task.process}:{number}")
                    number += 1
            producer.poll(self.task.pause_s)
        producer.flush(END_S)

    def _send(self, producer: Producer, partition: int, value: str) -> None:
        send = Send(self.key(partition), value)
        op = self.recorder.begin(send)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                send.offset = known_offset(message)
            self._delivered(op, error)

        producer.produce(self.task.topic, value, partition=partition, on_delivery=on_delivery)

    def _delivered(self, op: Op, error: KafkaError | None) -> None:
        # Whatever went wrong, a batch may have been written before it did.
        self.recorder.end(op, "ok" if error is None else "unknown", "" if error is None else error.name())
