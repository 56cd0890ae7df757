"""Log directories of a broker: what a failed one takes away, and where a log was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.controller.decision import Decision
from tidelog.controller.leaders import led_by, replicas_of
from tidelog.metadata.image import NO_LEADER, MetadataImage
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.uuids import ZERO_UUID


def take_offline(image: MetadataImage, node_id: int, directory_id: bytes) -> Decision:
    """The broker lost a directory: it serves the others, and nobody leads what was there."""
    broker = image.brokers[node_id]
    remaining = [directory for directory in broker.log_dirs if directory != directory_id]
    records: list[Any] = [
        r.BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, log_dirs=remaining)
    ]
    for topic, index, state in replicas_of(image, node_id):
        if state.directory_of(node_id) == directory_id and state.leader == node_id:
            records.append(led_by(topic, index, NO_LEADER))
    return Decision(None, records)


def assign(image: MetadataImage, node_id: int, found: Mapping[tuple[bytes, int], bytes]) -> Decision:
    """The broker has the logs of these partitions, by topic id and index, in other directories than the metadata
    says."""
    records: list[Any] = []
    for (topic_id, index), directory in sorted(found.items()):
        topic = image.topic_by_id(topic_id)
        state = None if topic is None else topic.partitions.get(index)
        if state is None or node_id not in state.replicas or state.directory_of(node_id) == directory:
            continue
        directories = [*state.directories, *[ZERO_UUID] * (len(state.replicas) - len(state.directories))]
        directories[state.replicas.index(node_id)] = directory
        records.append(r.PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories))
    return Decision(None, records)
