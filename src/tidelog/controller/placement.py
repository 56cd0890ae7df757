"""Which brokers hold the replicas of a new partition."""

from __future__ import annotations

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


def placed_record(topic_id: bytes, index: int, replicas: list[int], image: MetadataImage) -> r.PartitionRecord:
    state = PartitionState(
        replicas=tuple(replicas),
        isr=tuple(replicas),
        leader=replicas[0],
        directories=tuple(_directory(image, broker) for broker in replicas),
    )
    return partition_record(topic_id, index, state)


def _directory(image: MetadataImage, broker_id: int) -> bytes:
    broker = image.brokers.get(broker_id)
    return broker.log_dirs[0] if broker is not None and broker.log_dirs else ZERO_UUID
