"""A member of a group that commits what it has polled."""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicPartition

from tests.chaos.history import Commit, Disown, Poll
from tests.chaos.workers.base import error_of
from tests.chaos.workers.grouped import Grouped


class Member(Grouped):
    def run(self) -> None:
        self.join()
        while not self.stopping.is_set():
            op = self.recorder.begin()
            positions: dict[int, int] = {}
            for message in self.consumer.consume(100, timeout=0.1):
                if message.error() is None:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    op.actions.append(Poll(self.key(partition), (message.value() or b"").decode(), offset))
                    positions[partition] = offset + 1
            self.recorder.end(op, "ok")
            if positions:
                self._commit(positions)
            self.rest()
        self.recorder.note(Disown(self.task.group, ()))
        self.consumer.close()

    def _commit(self, positions: dict[int, int]) -> None:
        op = self.recorder.begin(*(Commit(self.task.group, self.key(at), offset) for at, offset in positions.items()))
        places = [TopicPartition(self.task.topic, at, offset) for at, offset in positions.items()]
        try:
            told = self.consumer.commit(offsets=places, asynchronous=False) or []
        except KafkaException as raised:
            # It may have been done at a first try whose answer was lost.
            return self.recorder.end(op, "unknown", error_of(raised).name())
        refused = [place.error for place in told if place.error is not None]
        return self.recorder.end(op, "unknown" if refused else "ok", str(refused or ""))
