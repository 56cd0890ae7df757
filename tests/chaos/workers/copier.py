"""Exactly-once copying by librdkafka: the records and the positions go into one transaction."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from confluent_kafka import KafkaException, Message, TopicPartition

from tests.chaos.history import Commit, Disown, Op, Poll, Send
from tests.chaos.workers.base import error_of
from tests.chaos.workers.grouped import Grouped
from tests.chaos.workers.transactional import CALL_S, Lost, Transactional

BATCH = 50
HANGS_S = 12.0
HUNG = "send_offsets_to_transaction hangs"


class Copier(Grouped, Transactional):
    def run(self) -> None:
        try:
            self.be_born()
            self.join()
            while not self.stopping.is_set():
                messages = [one for one in self.consumer.consume(BATCH, timeout=0.1) if one.error() is None]
                if messages:
                    self._copy(messages)
            self.consumer.close()
        except Lost as lost:
            self.recorder.note(Disown(self.task.group, ()))
            self.recorder.end(self.recorder.begin(), "ok", f"lost: {lost}")
        os._exit(0)

    def _copy(self, messages: list[Message]) -> None:
        positions: dict[int, int] = {}
        first: dict[int, int] = {}
        op = self.recorder.begin(transactional=True)
        sends: list[tuple[Send, int]] = []
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            value = (message.value() or b"").decode()
            op.actions.append(Poll(self.key(partition), value, offset))
            target = self.key(partition, self.task.target)
            sends.append((Send(target, f"{value}@{self.task.process}.{op.number}"), partition))
            first.setdefault(partition, offset)
            positions[partition] = offset + 1
        op.actions += [send for send, _ in sends]
        op.actions += [Commit(self.task.group, self.key(number), offset) for number, offset in positions.items()]
        self.recorder.write(op)
        if not self._transaction(op, sends, positions):
            self._rewind(first)

    def _transaction(self, op: Op, sends: Iterable[tuple[Send, int]], positions: dict[int, int]) -> bool:
        """Whether it was committed."""
        watch = threading.Timer(HANGS_S, self._hangs, (op,))
        try:
            self.producer.begin_transaction()
            for send, partition in sends:
                self.send(op, send, self.task.target, partition)
            places = [TopicPartition(self.task.topic, number, offset) for number, offset in positions.items()]
            watch.start()
            self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), CALL_S)
            watch.cancel()
        except KafkaException as raised:
            watch.cancel()
            error = error_of(raised)
            if error.fatal():
                self.recorder.end(op, "fail", error.name())
                raise Lost(error.name()) from raised
            self.abort(op, f"{error.name()} {error.str()}")
            return False
        self.commit(op)
        return op.outcome == "ok"

    def _hangs(self, op: Op) -> None:
        """librdkafka 2.16 may wait for the group's coordinator for ever when the node was killed meanwhile, whatever
        time-out it was given. Nobody has asked for a commit yet."""
        self.recorder.end(op, "fail", HUNG)
        self.recorder.note(Disown(self.task.group, ()))
        os._exit(0)

    def _rewind(self, first: dict[int, int]) -> None:
        """What was not committed is read again, unless it is another's by now."""
        mine = {place.partition for place in self.consumer.assignment()}
        for partition, offset in first.items():
            if partition in mine:
                self.consumer.seek(TopicPartition(self.task.topic, partition, offset))
