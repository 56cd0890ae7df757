"""A walk over the records of a batch that makes no objects: does their number fit, has each a key?

For the data plane, where a topic asks for keys or for another compression. A record's length and its key are looked
at; time, offset, value and headers are the consumer's. Decoding proper is `batch.iter_records`.
"""

from __future__ import annotations

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    read_varint,
    records_payload,
    set_crc,
)
from tidelog.protocol.compression import Codec, compress


def have_keys(payload: Buffer, count: int) -> bool:
    """Whether each of so many records has a key. ProtocolError when there are not so many, or when they are none."""
    data = bytes(payload)  # reading bytes one by one is faster than reading a view
    end = len(data)
    position = 0
    all_have_keys = True
    try:
        for _ in range(count):
            length = data[position]
            position += 1
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = read_varint(data, position - 1)
            stop = position + length
            if length < 0 or stop > end:
                raise ProtocolError("a record runs over the end of its batch")
            position += 1
            while data[position] >= 0x80:  # timestamp
                position += 1
            position += 1
            while data[position] >= 0x80:  # offset
                position += 1
            position += 1
            key = data[position]
            if key == 1:  # -1
                all_have_keys = False
            elif key & 1 or key >= 0x80 or position + (key >> 1) >= stop:
                _check_key(data, position, stop)
            position = stop
    except IndexError:
        raise ProtocolError("a record runs over the end of its batch") from None
    if position != end:
        raise ProtocolError(f"{end - position} bytes left over after the last record of a batch")
    return all_have_keys


def _check_key(data: bytes, position: int, stop: int) -> None:
    length, position = read_varint(data, position)
    if length < 0 or position + length > stop:
        raise ProtocolError("the key of a record runs over its end")


def recompressed(
    batch: Buffer, header: BatchHeader, codec: Codec, level: int | None, limit_bytes: int
) -> tuple[bytearray, BatchHeader, bool]:
    """The same records in another compression, and whether each has a key; what the header says of them stays."""
    payload = records_payload(batch, header, limit_bytes)
    all_have_keys = have_keys(payload, header.record_count)
    packed = payload if codec is Codec.NONE else compress(codec, payload, level)
    result = bytearray(batch[:HEADER_SIZE])
    result += packed
    HEADER.pack_into(
        result,
        0,
        *header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
            attributes=header.attributes & TRANSACTIONAL | int(codec),
        ),
    )
    set_crc(result)
    return result, read_header(result), all_have_keys
