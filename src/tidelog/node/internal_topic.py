"""An internal topic whose partitions are the shards of a coordinator: loaded and unloaded as the metadata says. Knows
nothing of groups or transactions."""

from __future__ import annotations

from typing import Protocol

from tidelog.metadata.image import MetadataDelta, TopicImage
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions


class Shards(Protocol):
    """What a coordinator does with the partitions of its topic. Being told again what it knows changes nothing."""

    def set_shard_count(self, count: int) -> None:
        """How many there are: by that number a name finds its shard."""
        ...

    def load_shard(self, index: int, epoch: int, partition: Partition) -> None: ...

    def unload_shard(self, index: int, epoch: int) -> None: ...


class InternalTopic:
    def __init__(self, name: str, partitions: Partitions, publisher: MetadataPublisher, shards: Shards) -> None:
        self._name = name
        self._partitions = partitions
        self._publisher = publisher
        self._shards = shards

    def on_delta(self, delta: MetadataDelta) -> None:
        for topic in delta.deleted:
            if topic.name == self._name:
                self._unload(topic)
        if any(topic.name == self._name for topic in (*delta.created, *delta.changed)):
            self.load()

    def load(self) -> None:
        """Also again, when a partition that could not be opened is there now."""
        topic = self._publisher.image.topics.get(self._name)
        if topic is None:
            return
        # Somebody may have created it by hand: its partitions decide where a name lives, not what the file says.
        self._shards.set_shard_count(len(topic.partitions))
        for index, state in sorted(topic.partitions.items()):
            partition = self._partitions.get(self._name, index)
            if partition is None:
                self._shards.unload_shard(index, state.leader_epoch)
            else:
                self._shards.load_shard(index, state.leader_epoch, partition)

    def _unload(self, topic: TopicImage) -> None:
        """A topic of that name may come back, and its epochs begin anew."""
        for index, state in sorted(topic.partitions.items()):
            self._shards.unload_shard(index, state.leader_epoch)
