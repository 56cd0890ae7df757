"""What the broker says of a partition whose bytes come from files: where its log begins, that it still is the same
topic, and which records the leader has."""

from __future__ import annotations

from typing import Final

import numpy as np

from tidelog.client.errors import BrokerError
from tidelog.client.metadata import TopicPartition
from tidelog.kernel.ports import Clock
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Batches
from tidelog.spark.link import Link
from tidelog.spark.pump import TopicChangedError
from tidelog.spark.segments.folder import Gap
from tidelog.spark.segments.segment import last_offsets

ASKED_EVERY_S: Final = 1.0
"""A log's start and a topic's id are at most so old: between two questions files are read for about so long."""


class Bounds:
    def __init__(self, link: Link, at: TopicPartition, topic_id: str, clock: Clock) -> None:
        self._link = link
        self._at = at
        self._topic_id = topic_id
        self._clock = clock
        self._asked_s: float | None = None
        self.log_start_offset = 0

    def check(self, position: int) -> None:
        """What a fetch of the position would raise: TopicChangedError, MissingError, BrokerError (OFFSET_OUT_OF_RANGE)
        for what was deleted, though the files may still have it."""
        now_s = self._clock.monotonic_s()
        if self._asked_s is None or now_s - self._asked_s >= ASKED_EVERY_S:
            at = self._at
            found = self._link.topic_ids([at.topic]).get(at.topic)
            if found is not None and found != self._topic_id:
                raise TopicChangedError(at, self._topic_id, found)
            self.log_start_offset = self._link.earliest([at])[at]
            self._asked_s = now_s
        if position < self.log_start_offset:
            subject = f"offset {position} of partition {self._at.partition} of topic {self._at.topic}"
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, subject)


class Lineage:
    """Whether batches in a file are those that the leader has. The directory may be that of a node which led the
    partition once, or was cut off, and has not yet given up what it alone had: offset for offset there, but other
    records. An offset and the leader epoch of its batch together mean the same record everywhere (KIP-101)."""

    def __init__(self, link: Link, at: TopicPartition) -> None:
        self._link = link
        self._at = at
        self._ends: dict[int, int] = {}

    def check(self, batches: Batches) -> None:
        """Gap when the leader has others."""
        epochs = np.asarray(batches.leader_epoch)
        lasts = last_offsets(batches)
        for epoch in np.unique(epochs).tolist():
            last = int(lasts[epochs == epoch].max())
            if last >= self._ends.get(epoch, -1):
                self._ends[epoch] = self._ask(epoch)
            if last >= self._ends[epoch]:
                raise Gap(f"offset {last} of leader epoch {epoch} is not in the leader's log")

    def _ask(self, epoch: int) -> int:
        found = self._link.epoch_end(self._at.topic, self._at.partition, epoch)
        return found.end_offset if found.leader_epoch == epoch else -1
