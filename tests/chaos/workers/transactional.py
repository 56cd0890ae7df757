"""Transactions of librdkafka, and what their errors mean for the outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.history import Op, Outcome, Send
from tests.chaos.workers.base import TRANSACTION_MS, Worker, error_of, known_offset

ABORTS = 0.15
CALL_S = 5.0
TRIES_S = 40.0


class Lost(Exception):
    """The producer is of no use any more: fenced, or it does not know how its transaction ended."""


class Transactional(Worker):
    producer: Producer

    def be_born(self) -> None:
        """A producer with our transactional id, once the broker lets us."""
        settings = {
            "transactional.id": self.task.transactional_id,
            "transaction.timeout.ms": TRANSACTION_MS,
            "message.timeout.ms": TRANSACTION_MS - 1000,
            "linger.ms": 1,
        }
        self.producer = Producer(self.base | settings)
        while not self.stopping.is_set():
            try:
                self.producer.init_transactions(CALL_S)
                return
            except KafkaException as raised:
                if not error_of(raised).retriable():
                    raise Lost(error_of(raised).name()) from raised

    def transaction(self, fill: Callable[[Op], None]) -> Op:
        """One transaction of what `fill` does; some are aborted on purpose."""
        op = self.recorder.begin(transactional=True)
        try:
            self.producer.begin_transaction()
            fill(op)
            if self.chance.random() < ABORTS:
                self.abort(op, "on purpose")
                return op
        except KafkaException as raised:
            error = error_of(raised)
            if error.fatal():
                self.recorder.end(op, "fail", error.name())
                raise Lost(error.name()) from raised
            self.abort(op, error.name())
            return op
        self.commit(op)
        return op

    def send(self, op: Op, send: Send, topic: str, partition: int, **record: Any) -> None:
        """`record`: what the record is, where it is more than its name as the value."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                send.offset = known_offset(message)
                self.recorder.write(op)

        record = record or {"value": send.value}
        self.producer.produce(topic, partition=partition, on_delivery=on_delivery, **record)

    def commit(self, op: Op) -> None:
        """Asks for the commit until it is known how it ended."""
        self.recorder.decide(op)
        deadline = time.monotonic() + TRIES_S
        while True:
            try:
                self.producer.commit_transaction(CALL_S)
                return self.recorder.end(op, "ok")
            except KafkaException as raised:
                error = error_of(raised)
                if error.txn_requires_abort():
                    # librdkafka says so only where the commit was not done.
                    return self._abort(op, f"commit: {error.name()}", "fail")
                if not error.retriable() or time.monotonic() > deadline:
                    self.recorder.end(op, "unknown", f"commit: {error.name()} {error.str()}")
                    raise Lost(error.name()) from raised

    def abort(self, op: Op, note: str) -> None:
        """A transaction for which nobody asked for a commit failed, whatever the answers."""
        if op.decided is None:
            self.recorder.decide(op)
        self._abort(op, note, "fail")

    def _abort(self, op: Op, note: str, outcome: Outcome) -> None:
        deadline = time.monotonic() + TRIES_S
        while True:
            try:
                self.producer.abort_transaction(CALL_S)
                return self.recorder.end(op, outcome, note)
            except KafkaException as raised:
                error = error_of(raised)
                if not error.retriable() or time.monotonic() > deadline:
                    self.recorder.end(op, outcome, f"{note}, abort: {error.name()} {error.str()}")
                    raise Lost(error.name()) from raised
