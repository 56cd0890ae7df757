"""encode: columns to record batches, in every compression. What decode reads of them are the same records.

Offsets are kept: each batch begins at its first record's offset, and gaps stay gaps. A producer's records have offsets
from 0 on; the broker gives them their own.
"""

from __future__ import annotations

from typing import Final

from tidelog.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    increment_sequence,
    set_crc,
)
from tidelog.protocol.compression import Codec, compress
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.twins import module

_INT32_MAX: Final = 2**31 - 1


def encode(
    columns: Columns,
    *,
    batch_bytes: int = 1 << 20,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> list[bytearray]:
    """Batches of at most batch_bytes before compression; a record that is larger has a batch to itself.

    attributes are the batches' own (TRANSACTIONAL, CONTROL, APPEND_TIME), without the codec. A sequence counts on from
    batch to batch. What `columns.batches` says is not looked at, except that control records do not become data.
    """
    if attributes & CODEC_MASK:
        raise ValueError("the compression is given as codec, not in the attributes")
    if not attributes & CONTROL and any(one & CONTROL for one in columns.batches.attributes.tolist()):
        raise ValueError("there are control records among the columns")
    batches = []
    loops = module("encode", columns.twin)
    for first, last, max_timestamp, content in loops.payloads(columns, batch_bytes - HEADER_SIZE):
        packed = content if codec is Codec.NONE else compress(codec, content, level)
        base_offset = int(columns.offset[first])
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes | int(codec),
            last_offset_delta=int(columns.offset[last - 1]) - base_offset,
            base_timestamp=int(columns.timestamp[first]),
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence if base_sequence < 0 else increment_sequence(base_sequence, first),
            record_count=last - first,
        )
        batches.append(_batch(header, packed))
    return batches


def _batch(header: BatchHeader, packed: bytes | bytearray | memoryview) -> bytearray:
    if header.batch_length > _INT32_MAX:
        raise ValueError(f"a batch of {header.size} bytes: 2 GiB is the most")
    batch = bytearray(HEADER.pack(*header))
    batch += packed
    set_crc(batch)
    return batch
