"""What a client's batch must satisfy before its first byte is written. Reads the header; the records only where a
config of the topic asks for it (another compression, keys of a compacted topic)."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.errors import ProtocolError
from tidelog.log.config import LogConfig
from tidelog.log.errors import LogError
from tidelog.protocol.batch import (
    APPEND_TIME,
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    crc_is_valid,
    read_header,
    records_payload,
    set_append_time,
    set_create_time,
)
from tidelog.protocol.compression import CODEC_NAMES, Codec
from tidelog.protocol.crc import crc32c
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.record_walk import have_keys, recompressed

_LARGEST_CODEC: Final = 4
_ATTRIBUTES_LOW: Final = ATTRIBUTES_OFFSET + 1
_DECOMPRESSED_FACTOR: Final = 16
_RECORDS_READ_MAX: Final = 250_000
_unpack_header: Final = HEADER.unpack_from
_new_tuple: Final = tuple.__new__


def prepare_batch(records: memoryview, config: LogConfig, now_ms: int) -> tuple[bytearray | memoryview, BatchHeader]:
    """The one batch of a Produce for one partition, checked; patched or rebuilt where the topic's configuration asks.
    LogError carries Kafka's code and a sentence."""
    plain = plain_header(records, config, now_ms, _transactional(records))
    if plain is not None:
        return records, plain
    header = _check_header(records, config)
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms or (
        now_ms - header.max_timestamp > config.message_timestamp_before_max_ms
    ):
        _check_timestamp(header, config, now_ms)
    batch: bytearray | memoryview = records
    has_keys = True
    if config.compression_type != "producer" and CODEC_NAMES[config.compression_type] != header.attributes & CODEC_MASK:
        batch, header, has_keys = _recompress(records, header, config)
        _check_size(len(batch), config)
    elif "compact" in config.cleanup_policy:
        has_keys = _has_keys(batch, header, config)
    if not has_keys and "compact" in config.cleanup_policy:
        raise LogError(ErrorCode.INVALID_RECORD, "a compacted topic accepts only records with a key")
    if config.message_timestamp_type == "LogAppendTime":
        header = set_append_time(batch, header, now_ms)
    elif header.attributes & APPEND_TIME:
        header = set_create_time(batch, header)
    return batch, header


def _transactional(records: memoryview) -> int:
    return records[_ATTRIBUTES_LOW] & TRANSACTIONAL if len(records) > _ATTRIBUTES_LOW else 0


def plain_header(records: memoryview, config: LogConfig, now_ms: int, flags: int = 0) -> BatchHeader | None:
    """The header of a batch that prepare_batch would give back untouched; None when there is more to look at. `flags`:
    what its attributes must say beside the compression."""
    size = len(records)
    if size < HEADER_SIZE or not config.keeps_batches:
        return None
    fields = _unpack_header(records)
    _, length, _, magic, crc, attributes, last_delta, _, timestamp, producer_id, epoch, sequence, count = fields
    if (
        length != size - LOG_OVERHEAD
        or magic != MAGIC
        or size > config.batch_bytes_max
        or not 0 <= attributes ^ flags <= _LARGEST_CODEC
        or last_delta != count - 1
        or count <= 0
        or timestamp - now_ms > config.message_timestamp_after_max_ms
        or now_ms - timestamp > config.message_timestamp_before_max_ms
        or (producer_id != NO_PRODUCER_ID and (sequence < 0 or epoch < 0))
        or crc32c(records[ATTRIBUTES_OFFSET:]) != crc
    ):
        return None
    return _new_tuple(BatchHeader, fields)


def _check_header(records: memoryview, config: LogConfig) -> BatchHeader:
    size = len(records)
    if size == 0:
        raise LogError(ErrorCode.INVALID_RECORD, "the request holds no batch for this partition")
    if size < HEADER_SIZE:
        raise LogError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes is smaller than its header")
    header = read_header(records)
    if header.magic != MAGIC:
        raise LogError(ErrorCode.INVALID_RECORD, f"the batch has format {header.magic}; only format 2 is accepted")
    if header.batch_length != size - LOG_OVERHEAD:
        if HEADER_SIZE - LOG_OVERHEAD <= header.batch_length < size - LOG_OVERHEAD:
            raise LogError(ErrorCode.INVALID_RECORD, "a partition of a Produce request must hold exactly one batch")
        raise LogError(ErrorCode.CORRUPT_MESSAGE, "the length of the batch does not fit the bytes received")
    _check_size(size, config)
    if not crc_is_valid(records, header):
        raise LogError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch is wrong")
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise LogError(
            ErrorCode.INVALID_RECORD, f"{count} records do not fit a last offset delta of {header.last_offset_delta}"
        )
    attributes = header.attributes
    if attributes & CONTROL:
        raise LogError(ErrorCode.INVALID_RECORD, "a client may not write control batches")
    if attributes & CODEC_MASK > _LARGEST_CODEC:
        raise LogError(ErrorCode.INVALID_RECORD, f"compression {attributes & CODEC_MASK} is unknown")
    if header.producer_id != NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise LogError(ErrorCode.INVALID_RECORD, "an idempotent batch needs a sequence and a producer epoch")
    return header


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise LogError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise LogError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes; segment.bytes is {config.segment_bytes}"
        )


def _check_timestamp(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type == "LogAppendTime" or header.max_timestamp < 0:
        return
    raise LogError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {header.max_timestamp} is out of range: message.timestamp.before.max.ms and "
        f"message.timestamp.after.max.ms allow {config.message_timestamp_before_max_ms} ms before and "
        f"{config.message_timestamp_after_max_ms} ms after the broker's time {now_ms}",
    )


def _limit(header: BatchHeader, config: LogConfig) -> int:
    """What a batch may be when decompressed, checked on the loop: minutes of work fit into a megabyte of zstd."""
    if header.record_count > _RECORDS_READ_MAX:
        raise LogError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records in a batch; a topic that is compacted, or that compresses anew, takes at"
            f" most {_RECORDS_READ_MAX}",
        )
    return max(config.max_message_bytes * _DECOMPRESSED_FACTOR, 1 << 20)


def _recompress(records: memoryview, header: BatchHeader, config: LogConfig) -> tuple[bytearray, BatchHeader, bool]:
    codec = Codec(CODEC_NAMES[config.compression_type])
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    try:
        return recompressed(records, header, codec, levels.get(codec), _limit(header, config))
    except ProtocolError as error:
        # Not CORRUPT_MESSAGE: the CRC is right, so a client that tries again sends the same.
        raise LogError(ErrorCode.INVALID_RECORD, str(error)) from None


def _has_keys(batch: bytearray | memoryview, header: BatchHeader, config: LogConfig) -> bool:
    try:
        return have_keys(records_payload(batch, header, _limit(header, config)), header.record_count)
    except ProtocolError as error:
        raise LogError(ErrorCode.INVALID_RECORD, str(error)) from None
