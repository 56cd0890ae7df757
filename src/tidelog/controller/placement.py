"""Which brokers hold the replicas of a new partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidelog.metadata.image import MetadataImage, PartitionState
from tidelog.metadata.snapshot import partition_record
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.uuids import ZERO_UUID


class NotEnoughBrokers(Exception):
    """The sentence names how many there are."""


def place_replicas(image: MetadataImage, partitions: Iterable[int], factor: int) -> dict[int, list[int]]:
    """Round robin over the live brokers, the first replica (the preferred leader) moving on with each partition."""
    brokers = [broker.broker_id for broker in image.live_brokers()]
    if factor > len(brokers):
        raise NotEnoughBrokers(
            f"Unable to replicate the partition {factor} time(s): only {len(brokers)} broker(s) are registered."
        )
    return {index: [brokers[(index + place) % len(brokers)] for place in range(factor)] for index in partitions}


class DirectoryChooser:
    """Which log directory of its broker a new replica goes to: the one with the fewest, counting what was chosen since.
    The metadata knows it before the log is made: a directory that is away later is missed, not made anew elsewhere."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._counts: Counter[bytes] | None = None

    def choose(self, broker_id: int) -> bytes:
        broker = self._image.brokers.get(broker_id)
        if broker is None or not broker.log_dirs:
            return ZERO_UUID
        if len(broker.log_dirs) == 1:
            return broker.log_dirs[0]
        if self._counts is None:
            states = (state for topic in self._image.topics.values() for state in topic.partitions.values())
            self._counts = Counter(directory for state in states for directory in state.directories)
        counts = self._counts
        chosen = min(broker.log_dirs, key=lambda directory: counts[directory])
        counts[chosen] += 1
        return chosen


def placed_record(topic_id: bytes, index: int, replicas: list[int], directories: DirectoryChooser) -> r.PartitionRecord:
    state = PartitionState(
        replicas=tuple(replicas),
        isr=tuple(replicas),
        leader=replicas[0],
        directories=tuple(directories.choose(broker) for broker in replicas),
    )
    return partition_record(topic_id, index, state)
