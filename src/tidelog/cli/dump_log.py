"""Batches and records of .log and .checkpoint files, and what the records of the internal topics mean."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from struct import Struct as Packing
from typing import Any, BinaryIO, Final

from msgspec import Struct
from msgspec.structs import fields

from tidelog.cli.formats import to_json
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Record,
    crc_is_valid,
    iter_records,
    read_header,
)
from tidelog.protocol.codec import decode
from tidelog.protocol.compression import Codec
from tidelog.protocol.records_framing import (
    SHARE,
    TRANSACTION,
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
)
from tidelog.protocol.uuids import ZERO_UUID, uuid_to_text

Entry = dict[str, Any]
Decoder = Callable[[Record], Entry]

_CONTROL_KEY: Final = Packing(">hh")
_CONTROL_TYPES: Final = {
    0: ("ABORT", "EndTxnMarker"),
    1: ("COMMIT", "EndTxnMarker"),
    2: ("LEADER_CHANGE", "LeaderChangeMessage"),
    3: ("SNAPSHOT_HEADER", "SnapshotHeaderRecord"),
    4: ("SNAPSHOT_FOOTER", "SnapshotFooterRecord"),
    5: ("KRAFT_VERSION", "KRaftVersionRecord"),
    6: ("KRAFT_VOTERS", "VotersRecord"),
}
_LISTS_OF_UUIDS: Final = ("directories", "log_dirs", "cordoned_log_dirs")


def read_batches(path: str, args: argparse.Namespace) -> Iterator[Entry]:
    """Every batch, with its records when they are wanted; a damaged one is shown as far as it can be."""
    decoder = _decoder(args.decoder, path)
    with open(path, "rb") as file:
        yield from _batches(file, args, decoder)


def _batches(file: BinaryIO, args: argparse.Namespace, decoder: Decoder) -> Iterator[Entry]:
    position = shown = 0
    while head := file.read(HEADER_SIZE):
        # Reads, no mapping: the file may belong to a running node, and a mapping that is cut off kills who reads it.
        problem = _misfit(head)
        if problem is not None:
            yield {"kind": "batch", "position": position, "problem": problem}
            return
        header = read_header(head)
        batch = head + file.read(header.size - HEADER_SIZE)
        if len(batch) < header.size:
            cut = f"a batch of {header.size} bytes is cut off after {len(batch)}"
            yield {"kind": "batch", "position": position, "problem": cut}
            return
        if args.from_offset is None or header.last_offset >= args.from_offset:
            if args.max_batches is not None and shown == args.max_batches:
                return
            shown += 1
            yield _batch_entry(batch, header, position)
            if args.records:
                yield from _record_entries(batch, header, decoder)
        position += header.size


def _misfit(head: bytes) -> str | None:
    if len(head) < HEADER_SIZE:
        return f"the file ends with {len(head)} bytes that are no batch"
    header = read_header(head)
    if header.magic != MAGIC:
        return f"format {header.magic} (or zeros) where a batch of format {MAGIC} should begin"
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        return f"a batch of {header.batch_length} bytes is smaller than its own header"
    return None


def _batch_entry(batch: bytes, header: BatchHeader, position: int) -> Entry:
    valid = crc_is_valid(batch, header)
    entry: Entry = {
        "kind": "batch",
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence if header.base_sequence >= 0 else -1,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
    }
    if header.attributes & DELETE_HORIZON:
        entry["deleteHorizonMs"] = header.base_timestamp
    entry |= {
        "position": position,
        "LogAppendTime" if header.is_append_time else "CreateTime": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compressCodec": _codec_name(header.codec),
        "crc": header.crc,
        "isValid": valid,
    }
    if not valid:
        entry["problem"] = "the checksum does not match"
    return entry


def _codec_name(codec: int) -> str:
    return Codec(codec).name.lower() if codec in list(Codec) else str(codec)


def _record_entries(batch: bytes, header: BatchHeader, decoder: Decoder) -> Iterator[Entry]:
    try:
        for record in iter_records(batch, header):
            yield _record_entry(header, record, decoder)
    except ProtocolError as error:
        yield {"kind": "record", "problem": str(error)}


def _record_entry(header: BatchHeader, record: Record, decoder: Decoder) -> Entry:
    entry: Entry = {
        "kind": "record",
        "offset": record.offset,
        "LogAppendTime" if header.is_append_time else "CreateTime": record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if record.headers:
        entry["headers"] = [[name, to_json(value)] for name, value in record.headers]
    try:
        return entry | (_control(record) if header.is_control else decoder(record))
    except ProtocolError as error:
        return entry | {"problem": str(error)} | _raw(record)


# What records mean


def _decoder(name: str, path: str) -> Decoder:
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if name == "auto":
        topics = {"__cluster_metadata": "metadata", "__consumer_offsets": "offsets"}
        topics |= {"__transaction_state": "transactions", "__share_group_state": "share"}
        name = topics.get(directory.rpartition("-")[0], "raw")
        if path.endswith(".checkpoint"):
            name = "metadata"
    return {
        "raw": _raw,
        "metadata": _metadata,
        "offsets": lambda record: _coordinator(record, "records_group"),
        "transactions": lambda record: _coordinator(record, TRANSACTION),
        "share": lambda record: _coordinator(record, SHARE),
    }[name]


def _raw(record: Record) -> Entry:
    return {"key": to_json(record.key), "payload": to_json(record.value)}


def _metadata(record: Record) -> Entry:
    decoded = decode_metadata_record(record.value or b"")
    if decoded is None:
        return _raw(record)
    message, version = decoded
    return {"type": type(message).__name__, "version": version, "payload": _fields(message)}


def _coordinator(record: Record, module: str) -> Entry:
    key = decode_coordinator_key(record.key or b"", module)
    if key is None:
        return _raw(record)
    shown: Entry = {"type": type(key).__name__.removesuffix("Key"), "key": _fields(key)}
    if record.value is None:
        return shown | {"payload": None}
    decoded = decode_coordinator_value(key, record.value)
    if decoded is None:
        return shown | {"payload": to_json(record.value)}
    return shown | {"version": decoded[1], "payload": _fields(decoded[0])}


def _control(record: Record) -> Entry:
    from tidelog.protocol.messages import records_control

    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise ProtocolError("a control record without a type")
    kind = _CONTROL_KEY.unpack_from(record.key)[1]
    if kind not in _CONTROL_TYPES:
        return {"type": f"CONTROL {kind}"} | _raw(record)
    name, shape = _CONTROL_TYPES[kind]
    value = record.value or b""
    # The marker of a transaction has its version in front; the others have it as their first field.
    position = 2 if shape == "EndTxnMarker" else 0
    version = 0 if len(value) < 2 else int.from_bytes(value[:2], "big")
    return {"type": name, "payload": _fields(decode(getattr(records_control, shape), version, value, position))}


def _fields(message: Struct) -> Entry:
    """A message as JSON has it: uuids and bytes as text."""
    shown: Entry = {}
    for found in fields(message):
        is_uuid = found.default == ZERO_UUID or found.name in _LISTS_OF_UUIDS
        shown[found.name] = _field(getattr(message, found.name), is_uuid)
    return shown


def _field(value: Any, is_uuid: bool) -> Any:
    match value:
        case Struct():
            return _fields(value)
        case list():
            return [_field(one, is_uuid) for one in value]
        case bytes():
            return uuid_to_text(value) if is_uuid and len(value) == len(ZERO_UUID) else to_json(value)
        case _:
            return value
