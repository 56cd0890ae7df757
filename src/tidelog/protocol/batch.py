"""Record batches, format v2: headers read and patched in place, whole batches built and taken apart.

The data plane uses only the header (`read_header`, `assign_offsets`); `build_batch` and `iter_records` are for the
control plane, the tools and the tests.

    offset size field
    0      8    base offset              (outside the CRC: the leader assigns it)
    8      4    batch length             (bytes after this field)
    12     4    partition leader epoch   (outside the CRC: the leader assigns it)
    16     1    magic                    (2)
    17     4    crc                      (CRC-32C from byte 21 to the end)
    21     2    attributes               (0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon)
    23     4    last offset delta
    27     8    base timestamp
    35     8    max timestamp
    43     8    producer id
    51     2    producer epoch
    53     4    base sequence
    57     4    record count
    61          records
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.compression import Codec, compress, decompress
from tidelog.protocol.crc import crc32c

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
MAGIC: Final = 2
assert HEADER.size == HEADER_SIZE

CODEC_MASK: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

_TIMESTAMP_MIN: Final = -(2**63)
_TIMESTAMP_MAX: Final = 2**63 - 1

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMPS: Final = Struct(">qq")


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def increment_sequence(sequence: int, by: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (sequence + by) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at position. The caller has made sure that 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def set_crc(batch: bytearray | memoryview) -> int:
    """To what the content has; the new CRC."""
    crc: int = crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:])
    _CRC.pack_into(batch, CRC_OFFSET, crc)
    return crc


def crc_is_valid(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the CRC of one whole batch (exactly header.size bytes) is right."""
    return bool(crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]) == header.crc)


def assign_offsets(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Patch what the leader assigns; neither field is covered by the CRC."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, 12, leader_epoch)


def set_append_time(batch: bytearray | memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Stamp the batch with the broker's time (LogAppendTime) and make the CRC again, which covers both fields."""
    return _restamp(batch, header, header.attributes | APPEND_TIME, now_ms)


def set_create_time(batch: bytearray | memoryview, header: BatchHeader) -> BatchHeader:
    """Say that the timestamps are the records' own, whatever the client said of them."""
    return _restamp(batch, header, header.attributes & ~APPEND_TIME, header.max_timestamp)


def _restamp(batch: bytearray | memoryview, header: BatchHeader, attributes: int, max_timestamp: int) -> BatchHeader:
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_OFFSET, attributes)
    _TIMESTAMPS.pack_into(batch, 27, header.base_timestamp, max_timestamp)
    crc = set_crc(batch)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch; stops before a partial one at the end."""
    end = len(buffer)
    while position + HEADER_SIZE <= end:
        header = read_header(buffer, position)
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
            raise ProtocolError(f"a batch of {header.batch_length} bytes is smaller than its own header")
        if position + header.size > end:
            return
        yield position, header
        position += header.size


# Varints


def write_varint(out: bytearray, value: int) -> None:
    """Zigzag LEB128; the same bytes serve for varint and varlong."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position after it)."""
    result = shift = 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1), position
            shift += 7
            if shift > 63:
                raise ProtocolError("a varint is longer than ten bytes")
    except IndexError:
        raise ProtocolError("a varint runs over the end of the batch") from None


# Records


def _encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    body = bytearray(1)  # attributes, always 0
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    for part in (key, value):
        if part is None:
            body.append(1)  # varint -1
        else:
            write_varint(body, len(part))
            body += part
    write_varint(body, len(headers))
    for name, content in headers:
        encoded = name.encode()
        write_varint(body, len(encoded))
        body += encoded
        if content is None:
            body.append(1)
        else:
            write_varint(body, len(content))
            body += content
    record = bytearray()
    write_varint(record, len(body))
    return bytes(record + body)


class RecordInput(NamedTuple):
    """What goes into a batch: a record that has no offset yet."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: Sequence[tuple[str, bytes | None]] = ()


def build_batch(
    records: Iterable[RecordInput],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """One batch whose offsets are consecutive from base_offset."""
    records = list(records)
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    if any(abs(record.timestamp - base_timestamp) > _TIMESTAMP_MAX for record in records):
        raise ValueError("the timestamps of a batch are further apart than 64 bits can tell")
    body = bytearray()
    for delta, record in enumerate(records):
        body += _encode_record(delta, record.timestamp - base_timestamp, record.key, record.value, record.headers)
    payload = body if codec is Codec.NONE else compress(codec, body, level)
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes | int(codec),
        len(records) - 1,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += payload
    set_crc(batch)
    return batch


def records_payload(batch: Buffer, header: BatchHeader, limit_bytes: int) -> Buffer:
    """The records of one whole batch, decompressed; a ProtocolError when they would exceed limit_bytes."""
    payload = memoryview(batch)[HEADER_SIZE : header.size]
    if header.codec == 0:
        return payload
    return decompress(header.codec, payload, limit_bytes)


def iter_records(batch: Buffer, header: BatchHeader | None = None, *, limit_bytes: int = 1 << 28) -> Iterator[Record]:
    """The records of one whole batch. Anything malformed is a ProtocolError."""
    if len(batch) < HEADER_SIZE:
        raise ProtocolError(f"a batch of {len(batch)} bytes is smaller than its own header")
    header = header or read_header(batch)
    if header.magic != MAGIC:
        raise ProtocolError(f"the batch has format {header.magic}; only format 2 is read")
    if not HEADER_SIZE <= header.size <= len(batch):
        raise ProtocolError(f"a batch of {header.size} bytes in {len(batch)}")
    payload = records_payload(batch, header, limit_bytes)
    position = 0
    append_time = header.max_timestamp if header.is_append_time else None
    for _ in range(header.record_count):
        length, position = read_varint(payload, position)
        end = position + length
        if length < 0 or end > len(payload):
            raise ProtocolError("a record runs over the end of its batch")
        yield _decode_record(payload, position, end, header, append_time)
        position = end
    if position != len(payload):
        raise ProtocolError(f"{len(payload) - position} bytes left over after the last record of a batch")


def _decode_record(payload: Buffer, position: int, end: int, header: BatchHeader, append_time: int | None) -> Record:
    timestamp_delta, position = read_varint(payload, position + 1)
    offset_delta, position = read_varint(payload, position)
    key, position = _read_bytes(payload, position, end)
    value, position = _read_bytes(payload, position, end)
    count, position = read_varint(payload, position)
    if count < 0 or count > end - position:
        raise ProtocolError(f"a record claims {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(payload, position, end)
        if name is None:
            raise ProtocolError("a record header has no name")
        content, position = _read_bytes(payload, position, end)
        try:
            headers.append((name.decode(), content))
        except UnicodeDecodeError:
            raise ProtocolError("the name of a record header is not UTF-8") from None
    if position != end:
        raise ProtocolError("the length of a record does not fit its fields")
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise ProtocolError(f"a record's offset is {offset_delta}; the last of its batch is {header.last_offset_delta}")
    timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
    if not _TIMESTAMP_MIN <= timestamp <= _TIMESTAMP_MAX:
        raise ProtocolError(f"a record has the timestamp {timestamp}, which is more than 64 bits")
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _read_bytes(payload: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length < 0:
        if length != -1:
            raise ProtocolError(f"a length of {length} in a record")
        return None, position
    if length > end - position:
        raise ProtocolError("a field runs over the end of its record")
    return bytes(payload[position : position + length]), position + length
