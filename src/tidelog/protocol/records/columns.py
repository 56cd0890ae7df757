"""What a decoded stretch of a log looks like: a column of numbers per field, and positions instead of copied bytes.

Every column is flat int64 with the buffer protocol: array('q') from the pure twin, a numpy array from the native one.
Nothing here knows how the columns were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import BatchHeader, Record

if TYPE_CHECKING:
    import pyarrow

TwinName: TypeAlias = Literal["pure", "native"]


class Column(Protocol):
    """The part of array('q') and of a numpy array that both have."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    def tolist(self) -> list[int]: ...


HEADER_FIELDS: Final = BatchHeader._fields
BATCH_FIELDS: Final = ("position", *HEADER_FIELDS, "payload_start", "payload_end")
"""The order in which both twins make the columns of batches; the middle is the header's own order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """A row per batch."""

    position: Column
    """Of the batch in the input."""
    base_offset: Column
    batch_length: Column
    leader_epoch: Column
    magic: Column
    crc: Column
    attributes: Column
    last_offset_delta: Column
    base_timestamp: Column
    max_timestamp: Column
    producer_id: Column
    producer_epoch: Column
    base_sequence: Column
    record_count: Column
    payload_start: Column
    """Of the records in Columns.data, where they are no longer compressed."""
    payload_end: Column
    first_record: Column
    """One more than there are batches: batch i has the records first_record[i] to first_record[i + 1] - 1."""

    @property
    def count(self) -> int:
        return len(self.position)

    def header(self, index: int) -> BatchHeader:
        """The header of one batch as the rest of the code knows it."""
        return BatchHeader._make(int(getattr(self, name)[index]) for name in HEADER_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A row per record, over all batches, control batches too (`batches.attributes[batch[i]] & CONTROL` tells)."""

    twin: TwinName
    """Which twin made it; to_arrow and encode go on with the same one."""
    consumed: int
    """Bytes of the input in whole batches; what follows is a part of one."""
    data: Buffer
    """Where positions point: the input itself when nothing was compressed, else the records of all batches."""
    offset: Column
    timestamp: Column
    """The batch's greatest one where the broker stamps (timestamp type 1)."""
    batch: Column
    """The record's row in batches."""
    start: Column
    """Of the whole record in data, its length included."""
    end: Column
    key_start: Column
    key_size: Column
    """-1: null, as for all sizes."""
    value_start: Column
    value_size: Column
    header_first: Column
    """One more than there are records: record i has the headers header_first[i] to header_first[i + 1] - 1."""
    header_key_start: Column
    header_key_size: Column
    header_value_start: Column
    header_value_size: Column
    batches: Batches

    @property
    def count(self) -> int:
        return len(self.offset)

    def to_arrow(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        headers: bool = True,
        control: bool = False,
        keep: Any = None,
    ) -> pyarrow.RecordBatch:
        """The records as an Arrow batch with the columns of Spark's Kafka source: key, value, topic and partition
        where they are given, offset, timestamp, timestampType, headers.

        Control records are left out unless `control` is set. `keep` has an entry per record and leaves out those where
        it is false: records of aborted transactions are the caller's to know.
        """
        from tidelog.protocol.records.arrow import to_arrow

        return to_arrow(self, topic=topic, partition=partition, headers=headers, control=control, keep=keep)

    def record(self, index: int) -> Record:
        """One record with its bytes copied: for tools and tests, not for many. The name of a header that is not UTF-8
        is read as Java reads it, with a replacement character."""
        first, last = self.header_first[index], self.header_first[index + 1]
        headers = []
        for header in range(first, last):
            name = self._bytes(self.header_key_start[header], self.header_key_size[header])
            content = self._bytes(self.header_value_start[header], self.header_value_size[header])
            headers.append(((name or b"").decode(errors="replace"), content))
        return Record(
            int(self.offset[index]),
            int(self.timestamp[index]),
            self._bytes(self.key_start[index], self.key_size[index]),
            self._bytes(self.value_start[index], self.value_size[index]),
            tuple(headers),
        )

    def _bytes(self, start: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.data[start : start + size])
