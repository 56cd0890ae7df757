"""Who leads: elections when a node comes back, none when it goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.metadata.image import NO_LEADER, MetadataImage, PartitionState, TopicImage
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.uuids import ZERO_UUID


def elect_at_start(image: MetadataImage, node_id: int) -> list[Any]:
    """A node that comes back leads its partitions in a new epoch: what a crash cut off is told apart from what
    follows. It is the only replica, so in sync again, and nobody else is left who could have led (KIP-966). Those whose
    directory did not come back with it have no leader."""
    online = image.brokers[node_id].log_dirs
    records: list[Any] = []
    for topic, index, state in replicas_of(image, node_id):
        directory = state.directory_of(node_id)
        if directory == ZERO_UUID or directory in online:
            records.append(
                r.PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    leader=node_id,
                    isr=None if node_id in state.isr else [node_id],
                    leader_recovery_state=0 if state.leader_recovery_state else -1,
                    eligible_leader_replicas=[] if state.eligible_leaders else None,
                    last_known_elr=[] if state.last_known_leaders else None,
                )
            )
        elif state.leader == node_id:
            records.append(led_by(topic, index, NO_LEADER))
    return records


def resign(image: MetadataImage, node_id: int) -> list[Any]:
    """The partitions that the node leads have no leader. The last replica in sync stays that."""
    return [
        led_by(topic, index, NO_LEADER)
        for topic, index, state in replicas_of(image, node_id)
        if state.leader == node_id
    ]


def replicas_of(image: MetadataImage, node_id: int) -> Iterator[tuple[TopicImage, int, PartitionState]]:
    for _, topic in sorted(image.topics.items()):
        for index, state in sorted(topic.partitions.items()):
            if node_id in state.replicas:
                yield topic, index, state


def led_by(topic: TopicImage, index: int, leader: int) -> r.PartitionChangeRecord:
    return r.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=leader)
