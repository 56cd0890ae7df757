"""partition.metadata: the topic's id, without which Apache Kafka takes a partition's directory for a stray."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.ports import Disk, File
from tidelog.log.names import PARTITION_METADATA
from tidelog.protocol.uuids import uuid_from_text, uuid_to_text

_LINES: Final = "version: 0\ntopic_id: "


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """None without the file, or with one that a power cut tore: nothing in the partition was acknowledged then."""
    data = disk.read_file(f"{directory}/{PARTITION_METADATA}")
    return None if data is None else decode_topic_id(data)


def decode_topic_id(data: bytes) -> bytes | None:
    try:
        text = data.decode()
        return uuid_from_text(text[len(_LINES) :].strip()) if text.startswith(_LINES) else None
    except ValueError:
        return None


def is_same_topic(found: bytes | None, topic_id: bytes) -> bool:
    """Whether the id in the file can be this one. Nothing in the file tells a damaged id from another topic's, but ids
    are random: two of them never differ in a single letter."""
    if found is None or found == topic_id:
        return True
    letters = zip(uuid_to_text(found), uuid_to_text(topic_id), strict=True)
    return sum(ours != theirs for ours, theirs in letters) == 1


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> File:
    """Not synced: the log's first flush does that, for the returned file and its directory."""
    path = f"{directory}/{PARTITION_METADATA}"
    disk.replace_file(path, f"{_LINES}{uuid_to_text(topic_id)}".encode(), durable=False)
    return disk.open(path)
