"""Idempotent sends of kafka-python."""

from __future__ import annotations

from collections import deque
from typing import Any

from kafka import KafkaProducer

from tests.chaos.history import Op, Send
from tests.chaos.workers.base import Worker

IN_FLIGHT_MAX = 500
END_S = 60.0


class PythonSender(Worker):
    def run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.task.servers,
            enable_idempotence=True,
            retry_backoff_ms=50,
            reconnect_backoff_max_ms=200,
            delivery_timeout_ms=120_000,
        )
        waiting: deque[tuple[Op, Send, Any]] = deque()
        number = 0
        while not self.stopping.is_set():
            for partition in range(self.task.partitions):
                if len(waiting) < IN_FLIGHT_MAX:
                    send = Send(self.key(partition), f"{self.task.process}:{number}")
                    op = self.recorder.begin(send)
                    future = producer.send(self.task.topic, send.value.encode(), partition=partition)
                    waiting.append((op, send, future))
                    number += 1
            while waiting and waiting[0][2].is_done:
                self._note(*waiting.popleft())
            self.rest()
        for entry in waiting:
            self._note(*entry)
        producer.close(END_S)

    def _note(self, op: Op, send: Send, future: Any) -> None:
        try:
            told = future.get(END_S)
        except Exception as error:
            self.recorder.end(op, "unknown", repr(error))
        else:
            send.offset = told.offset if told.offset >= 0 else None
            self.recorder.end(op, "ok")
