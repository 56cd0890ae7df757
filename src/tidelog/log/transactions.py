"""The transactions of one log: the markers that end them, and where the first begins that readers must not pass.

Which producer is in one is known to producers.py, which were aborted to the segments (txn_index.py). A log that had
none since it was opened, and none that was aborted before, has no object of this kind: nothing is asked at a fetch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    RecordInput,
    build_batch,
    iter_records,
)

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_NEVER: Final = 2**63 - 1
_VERSION: Final = 0
ABORT: Final = 0
COMMIT: Final = 1
_OFFSET_AND_LENGTH: Final = Struct(">qi").unpack_from
_LAST_DELTA: Final = Struct(">i").unpack_from
_LAST_DELTA_AT: Final = 23


class Marker(NamedTuple):
    """The end of a transaction in one partition, as its coordinator decided."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int
    """0, 1 or 2. With 2 the epoch is newer than that of the data (KIP-890)."""


class Ending(NamedTuple):
    """What a marker in a log says."""

    committed: bool
    coordinator_epoch: int


def marker_batch(marker: Marker, now_ms: int) -> bytearray:
    """The control batch that ends the transaction, as Kafka writes it: one record, no sequence."""
    key = _KEY.pack(_VERSION, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [RecordInput(key, value, now_ms)],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def read_ending(batch: Buffer, header: BatchHeader) -> Ending | None:
    """None for a control batch of another kind, or one that makes no sense."""
    try:
        record = next(iter_records(batch, header), None)
    except ProtocolError:
        return None
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(record.key)[1]
    if kind not in (ABORT, COMMIT):
        return None
    return Ending(kind == COMMIT, _VALUE.unpack_from(record.value)[1])


class Transactions:
    __slots__ = ("_ended", "_open", "last_aborted")

    def __init__(self, open_since: Mapping[int, int], last_aborted: int = -1) -> None:
        """`open_since`: first offsets by producer, in their order; whoever gave it keeps it up to date."""
        self._open = open_since
        # (first offset, offset of the marker), only those that no later one begins before: both grow.
        self._ended: deque[tuple[int, int]] = deque()
        self.last_aborted = last_aborted
        """The offset of the last marker that aborted one: who reads behind it need not be told of any."""

    def ended(self, first_offset: int, marker_offset: int) -> None:
        """A marker was appended. Readers hear of it when it is committed."""
        ended = self._ended
        while ended and ended[-1][0] >= first_offset:
            ended.pop()
        ended.append((first_offset, marker_offset))

    def first_unstable_offset(self, high_watermark: int) -> int:
        """Where the first transaction begins that is open, or whose marker is not committed; behind every offset when
        there is none. The high watermark must not go back, but for a truncation."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        first_offset = next(iter(self._open.values()), _NEVER)
        return min(first_offset, ended[0][0]) if ended else first_offset

    def truncated(self, end_offset: int) -> None:
        """What ended behind the offset is open again."""
        while self._ended and self._ended[-1][1] >= end_offset:
            self._ended.pop()
        self.last_aborted = min(self.last_aborted, end_offset - 1)


def end_offset_of(records: Buffer, offset: int) -> int:
    """The offset behind the last whole batch of these, the offset given when there is none: a fetch may hold thousands,
    so only what is needed of each is read."""
    position, size = 0, len(records)
    last = -1
    while position + HEADER_SIZE <= size:
        length: int = _OFFSET_AND_LENGTH(records, position)[1]
        end = position + length + 12
        if end > size or length < 0:
            break
        last, position = position, end
    if last < 0:
        return offset
    end_offset: int = _OFFSET_AND_LENGTH(records, last)[0] + _LAST_DELTA(records, last + _LAST_DELTA_AT)[0] + 1
    return end_offset
