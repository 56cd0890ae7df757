"""A snapshot is the image as records: replayed on nothing it is the same image, in the order that Kafka writes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from tests.unit.metadata.histories import histories
from tests.unit.metadata.test_replay import plain, play
from tidelog.controller.decision import encode_record
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.metadata.snapshot import image_records
from tidelog.protocol.messages import records_metadata as r


@settings(max_examples=100)
@given(histories())
def test_a_snapshot_makes_the_same_image_again(batches: list[list[Any]]) -> None:
    image = play(batches)[0].image
    again = MetadataPublisher()
    again.replay([encode_record(record) for record in image_records(image)], 0, image.epoch)
    assert plain(again.image) == plain(image)


@settings(max_examples=30)
@given(histories())
def test_a_snapshot_is_the_same_whatever_the_way_to_the_image(batches: list[list[Any]]) -> None:
    image = play(batches)[0].image
    again = MetadataPublisher()
    again.apply(list(image_records(image)), 0, 1)
    assert list(image_records(again.image)) == list(image_records(image))


def test_the_order_is_kafkas() -> None:
    """Features with metadata.version first, brokers, controllers, topics each with its partitions, configs, ids."""
    publisher, _ = play(
        [
            [r.ProducerIdsRecord(next_producer_id=1000)],
            [r.ConfigRecord(resource_type=2, resource_name="b", name="flush.ms", value="1")],
            [r.ConfigRecord(resource_type=2, resource_name="a", name="flush.ms", value="1")],
            [r.TopicRecord(name=name, topic_id=name.encode() * 16) for name in "ba"],
            [r.PartitionRecord(partition_id=index, topic_id=b"a" * 16) for index in (1, 0)],
            [r.RegisterControllerRecord(controller_id=1), r.RegisterBrokerRecord(broker_id=1)],
            [r.FeatureLevelRecord(name=name, feature_level=1) for name in ("group.version", "metadata.version")],
        ]
    )
    shown = [
        (type(record).__name__.removesuffix("Record"), getattr(record, "name", getattr(record, "partition_id", "")))
        for record in image_records(publisher.image)
    ]
    assert shown == [
        ("FeatureLevel", "metadata.version"),
        ("FeatureLevel", "group.version"),
        ("RegisterBroker", ""),
        ("RegisterController", ""),
        ("Topic", "a"),
        ("Partition", 0),
        ("Partition", 1),
        ("Topic", "b"),
        ("Config", "flush.ms"),
        ("Config", "flush.ms"),
        ("ProducerIds", ""),
    ]


def test_nothing_is_no_records() -> None:
    assert list(image_records(MetadataImage())) == []
