"""A partition's directory: which segments are in it, and of which topic. It is held open: what was looked at stays what
it was, even when the topic is deleted (its directory is renamed) and created again under the same name."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.kernel.errors import TidelogError
from tidelog.log.names import LOG, PARTITION_METADATA, offsets_by_suffix, partition_dir
from tidelog.log.partition_metadata import decode_topic_id
from tidelog.protocol.uuids import uuid_to_text
from tidelog.runtime.peeking import PeekedDirectory

_METADATA_BYTES_MAX: Final = 4096


class Gap(TidelogError):
    """The files do not have what is asked for, or cannot be trusted with it. The broker is asked instead, up to the
    offset `until`, where files may have more; None: to the end."""

    def __init__(self, reason: str, until: int | None = None) -> None:
        super().__init__(reason)
        self.until = until


class Folder(PeekedDirectory):
    """Of one partition."""

    def topic_id(self) -> str | None:
        """None without a file that says it: then nobody knows whose records these are."""
        try:
            file = self.open(PARTITION_METADATA)
        except OSError:
            return None
        try:
            found = decode_topic_id(file.read(0, _METADATA_BYTES_MAX))
        finally:
            file.close()
        return None if found is None else uuid_to_text(found)

    def bases(self) -> list[int]:
        """The base offsets of the segments that are there now, in order. OSError."""
        return offsets_by_suffix(self.names())[LOG]


def find_folders(directories: Iterable[str], topic: str, partition: int, topic_id: str) -> tuple[list[Folder], str]:
    """(the directories of the partition that are of this topic, why there is none). More than one when the nodes of a
    cluster share a machine, or a path is named twice."""
    name = partition_dir(topic, partition)
    found: list[Folder] = []
    reasons: list[str] = []
    for directory in directories:
        path = f"{directory.rstrip('/')}/{name}"
        try:
            folder = Folder(path)
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            continue
        has = folder.topic_id()
        if has == topic_id:
            found.append(folder)
            continue
        folder.close()
        reasons.append(f"{path} is of the topic with the id {has or 'that nobody wrote down'}, not {topic_id}")
    return found, "; ".join(reasons)


def floor(bases: Sequence[int], offset: int) -> int | None:
    """The base of the segment that the offset belongs to, if it is there."""
    number = bisect_right(bases, offset)
    return bases[number - 1] if number else None


def following(bases: Sequence[int], base: int) -> int | None:
    """The base behind this one."""
    number = bisect_right(bases, base)
    return bases[number] if number < len(bases) else None
