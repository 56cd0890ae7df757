"""Holds the newest image and tells the subscribers what each committed batch changed, in the order they subscribed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.kernel.errors import TidelogError
from tidelog.metadata.image import MetadataDelta, MetadataImage
from tidelog.metadata.replay import Replay
from tidelog.protocol.records_framing import decode_metadata_record


class UnsupportedMetadataRecord(TidelogError):
    """The log holds a kind of record, or a version of one, that this release does not know."""


class MetadataPublisher:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self._subscribers: list[Callable[[MetadataDelta], asyncio.Future[None] | None]] = []
        self.unfinished: list[asyncio.Future[None]] = []
        """What subscribers still have to do for the newest delta."""

    def subscribe(self, subscriber: Callable[[MetadataDelta], asyncio.Future[None] | None]) -> None:
        """A subscriber that cannot do at once what a delta asks for gives a future that ends when it has."""
        self._subscribers.append(subscriber)

    def replay(self, values: Sequence[bytes], base_offset: int, epoch: int) -> MetadataDelta:
        """Apply one committed batch, given as the values of its records."""
        records = []
        for index, value in enumerate(values):
            decoded = decode_metadata_record(value)
            if decoded is None:
                raise UnsupportedMetadataRecord(
                    f"the metadata log holds a record at offset {base_offset + index} that a newer release has written"
                )
            records.append(decoded[0])
        return self.apply(records, base_offset, epoch)

    def apply(self, records: Sequence[Any], base_offset: int, epoch: int) -> MetadataDelta:
        replay = Replay(self.image)
        for index, record in enumerate(records):
            replay.apply(record, base_offset + index)
        self.image, delta = replay.finish(base_offset + len(records) - 1, epoch)
        self.unfinished = [later for told in self._subscribers if (later := told(delta)) is not None]
        return delta
