"""The newest image and its subscribers, and what a log of another release leads to."""

from __future__ import annotations

import pytest

from tidelog.controller.decision import encode_record
from tidelog.kernel.errors import ProtocolError, TidelogError
from tidelog.metadata.publisher import MetadataPublisher, UnsupportedMetadataRecord
from tidelog.protocol.messages import records_metadata as r

TOPIC = r.TopicRecord(name="t", topic_id=b"t" * 16)


def test_subscribers_are_told_in_the_order_they_came_and_see_the_new_image() -> None:
    publisher = MetadataPublisher()
    told: list[tuple[str, bool]] = []
    for name in ("first", "second"):
        publisher.subscribe(lambda delta, name=name: told.append((name, publisher.image is delta.after)))  # type: ignore[misc]
    publisher.apply([TOPIC], 0, 1)
    assert told == [("first", True), ("second", True)]


def test_offset_and_epoch_are_those_of_the_last_record() -> None:
    publisher = MetadataPublisher()
    assert publisher.image.offset == -1
    publisher.apply([TOPIC, r.NoOpRecord(), r.NoOpRecord()], 40, 7)
    assert (publisher.image.offset, publisher.image.epoch) == (42, 7)


@pytest.mark.parametrize("value", [b"\x01\xe8\x07\x00", b"\x01\x02\x63"])
def test_a_record_of_a_newer_release_is_named_by_its_offset(value: bytes) -> None:
    """An unknown kind, and a known kind in an unknown version."""
    publisher = MetadataPublisher()
    with pytest.raises(UnsupportedMetadataRecord, match="offset 6 that a newer release has written"):
        publisher.replay([encode_record(TOPIC), value], 5, 1)
    assert publisher.image.offset == -1, "nothing of the batch was applied"


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x02\x02\x00", b"\x01\x02\x00\xff"])
def test_bytes_that_are_no_record(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        MetadataPublisher().replay([value], 5, 1)


def test_a_batch_that_fails_in_the_middle_changes_nothing() -> None:
    publisher = MetadataPublisher()
    before = publisher.image
    told: list[object] = []
    publisher.subscribe(told.append)
    with pytest.raises(TidelogError, match="RemoveTopicRecord"):
        publisher.apply([TOPIC, r.RemoveTopicRecord(topic_id=b"?" * 16)], 0, 1)
    assert publisher.image is before and not told
