"""An internal partition as its coordinator uses it: key-value batches appended, told when committed, read back
whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer, Clock
from tidelog.log.errors import LogError
from tidelog.protocol.batch import (
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    RecordInput,
    build_batch,
    crc_is_valid,
    iter_headers,
    read_header,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition

_READ_BYTES: Final = 1 << 20


class PartitionShardLog:
    def __init__(self, partition: Partition, clock: Clock, *, base_sequence: int = 0) -> None:
        self._partition = partition
        self._clock = clock
        self._base_sequence = base_sequence

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    def append(
        self, records: list[tuple[bytes, bytes | None]], wall_ms: int, producer: tuple[int, int] | None = None
    ) -> int:
        producer_id, epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = build_batch(
            [RecordInput(key, value, wall_ms) for key, value in records],
            attributes=0 if producer is None else TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._base_sequence,
        )
        limit = self._partition.log.config.max_message_bytes
        if len(batch) > limit:
            raise LogError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {len(batch)} bytes; max.message.bytes is {limit}")
        self._partition.append(batch, read_header(batch), self._clock.wall_ms(), from_coordinator=producer is not None)
        return self._partition.log.log_end_offset

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        def committed(code: ErrorCode) -> None:
            callback(code if code is ErrorCode.NONE else ErrorCode.NOT_COORDINATOR)

        self._partition.when_committed(offset, committed)

    def read_all(self) -> Iterator[Buffer]:
        """Every whole batch. A damaged one ends the reading with an error rather than with less."""
        log = self._partition.log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            data = log.read(offset, _READ_BYTES, end_offset=end).data
            before = offset
            for position, header in self._headers(data):
                batch = memoryview(data)[position : position + header.size]
                if header.magic != MAGIC or not crc_is_valid(batch, header):
                    raise ProtocolError(f"a damaged batch in {log.directory} at offset {header.base_offset}")
                if header.last_offset >= offset:
                    yield batch
                    offset = header.next_offset
            if offset == before:
                raise ProtocolError(f"a damaged batch in {log.directory} at offset {offset}")

    def _headers(self, data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
        try:
            yield from iter_headers(data)
        except ProtocolError as error:
            raise ProtocolError(f"a damaged batch in {self._partition.log.directory}: {error}") from None
