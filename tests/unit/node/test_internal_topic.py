"""The shards of a coordinator follow the partitions of its topic."""

from __future__ import annotations

from typing import Any

from tidelog.metadata.image import MetadataDelta
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.internal_topic import InternalTopic
from tidelog.protocol.messages import records_metadata as r

ID, OTHER_ID = b"internal".ljust(16), b"other".ljust(16)


class World:
    """The calls that shards get, as text; partitions are their own names."""

    def __init__(self) -> None:
        self.publisher = MetadataPublisher()
        self.told: list[str] = []
        self.unopened: set[int] = set()
        partitions: Any = self
        self.topic = InternalTopic("internal", partitions, self.publisher, self)

    def get(self, topic: str, index: int) -> str | None:
        return None if index in self.unopened else f"{topic}-{index}"

    def set_shard_count(self, count: int) -> None:
        self.told.append(f"{count} shards")

    def load_shard(self, index: int, epoch: int, partition: Any) -> None:
        self.told.append(f"load {index} of epoch {epoch}: {partition}")

    def unload_shard(self, index: int, epoch: int) -> None:
        self.told.append(f"unload {index} of epoch {epoch}")

    def apply(self, *records: Any) -> MetadataDelta:
        delta = self.publisher.apply(records, self.publisher.image.offset + 1, 1)
        self.told.clear()
        self.topic.on_delta(delta)
        return delta

    def create(self, name: str = "internal", topic_id: bytes = ID, count: int = 2) -> None:
        self.apply(r.TopicRecord(name=name, topic_id=topic_id), *(partition(index, topic_id) for index in range(count)))


def partition(index: int, topic_id: bytes = ID) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=index + 5
    )


def test_each_partition_of_a_new_topic_is_loaded_with_its_epoch_when_their_number_is_known() -> None:
    world = World()
    world.topic.load()
    assert world.told == [], "there is no topic yet"
    world.create()
    assert world.told == ["2 shards", "load 0 of epoch 5: internal-0", "load 1 of epoch 6: internal-1"]


def test_one_that_cannot_be_opened_is_unloaded_and_loaded_when_it_is_there() -> None:
    world = World()
    world.unopened.add(0)
    world.create()
    assert world.told == ["2 shards", "unload 0 of epoch 5", "load 1 of epoch 6: internal-1"]
    world.unopened.clear()
    world.told.clear()
    world.topic.load()
    assert world.told == ["2 shards", "load 0 of epoch 5: internal-0", "load 1 of epoch 6: internal-1"]


def test_more_partitions_are_more_shards() -> None:
    world = World()
    world.create(count=1)
    world.apply(partition(1))
    assert world.told == ["2 shards", "load 0 of epoch 5: internal-0", "load 1 of epoch 6: internal-1"]


def test_a_topic_that_is_deleted_takes_its_shards_with_it() -> None:
    world = World()
    world.create()
    world.apply(r.RemoveTopicRecord(topic_id=ID))
    assert world.told == ["unload 0 of epoch 5", "unload 1 of epoch 6"]
    world.create(topic_id=OTHER_ID, count=1)
    assert world.told == ["1 shards", "load 0 of epoch 5: internal-0"]


def test_other_topics_change_nothing() -> None:
    world = World()
    world.create()
    world.create("t", OTHER_ID)
    assert world.told == []
    world.apply(r.RemoveTopicRecord(topic_id=OTHER_ID))
    assert world.told == []
