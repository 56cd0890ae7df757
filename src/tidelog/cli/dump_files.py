"""The small files of a data directory: indexes, producer snapshots, checkpoints, properties."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from struct import Struct as Packing
from typing import Any, Final

from tidelog.cli.common import CommandError
from tidelog.kernel.errors import TidelogError
from tidelog.log.checkpoints import decode_lines
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.log.producer_snapshot import decode_snapshot

Entry = dict[str, Any]
Reader = Callable[[str, argparse.Namespace], Iterator[Entry]]

_ABORTED: Final = Packing(">hqqqq")


def reader_of(name: str) -> Reader | None:
    """Who can read a file of that name."""
    for suffix, reader in _BY_SUFFIX.items():
        if name.endswith(suffix):
            return reader
    return _BY_NAME.get(name)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _base_offset(path: str) -> int:
    digits = os.path.basename(path).partition(".")[0]
    if not digits.isdecimal():
        raise CommandError("its name does not begin with the base offset of a segment")
    return int(digits)


def _offset_index(path: str, args: argparse.Namespace) -> Iterator[Entry]:
    base = _base_offset(path)
    for number, (relative, position) in enumerate(_whole_entries(_read(path), OFFSET_ENTRY)):
        if number and not relative:
            return  # the zeros that a running or killed broker leaves behind the last entry
        yield {"kind": "entry", "offset": base + relative, "position": position}


def _time_index(path: str, args: argparse.Namespace) -> Iterator[Entry]:
    base = _base_offset(path)
    for timestamp, relative in _whole_entries(_read(path), TIME_ENTRY):
        if not timestamp and not relative:
            return
        yield {"kind": "entry", "timestamp": timestamp, "offset": base + relative}


def _aborted_index(path: str, args: argparse.Namespace) -> Iterator[Entry]:
    for version, producer_id, first, last, stable in _whole_entries(_read(path), _ABORTED):
        yield {
            "kind": "entry",
            "version": version,
            "producerId": producer_id,
            "firstOffset": first,
            "lastOffset": last,
            "lastStableOffset": stable,
        }


def _whole_entries(data: bytes, packing: Packing) -> Iterator[tuple[Any, ...]]:
    if len(data) % packing.size:
        raise CommandError(f"{len(data)} bytes are not a whole number of entries of {packing.size} bytes")
    return packing.iter_unpack(data)


def _snapshot(path: str, args: argparse.Namespace) -> Iterator[Entry]:
    try:
        entries = decode_snapshot(_read(path))
    except TidelogError as error:
        raise CommandError(str(error)) from None
    for entry in entries:
        yield {
            "kind": "entry",
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_data_offset,
            "offsetDelta": entry.offset_delta,
            "lastTimestamp": entry.timestamp,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset,
        }


def _checkpoint(*names: str) -> Reader:
    def read(path: str, args: argparse.Namespace) -> Iterator[Entry]:
        try:
            lines = decode_lines(_read(path), os.path.basename(path))
        except TidelogError as error:
            raise CommandError(str(error)) from None
        for fields in lines:
            if len(fields) != len(names):
                raise CommandError(f"{' '.join(fields)!r} does not have the fields {', '.join(names)}")
            yield {"kind": "entry"} | {
                name: value if name == "topic" else _number(value) for name, value in zip(names, fields, strict=True)
            }

    return read


def _number(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


def _properties(separator: str) -> Reader:
    def read(path: str, args: argparse.Namespace) -> Iterator[Entry]:
        fields: Entry = {"kind": "entry"}
        for line in _read(path).decode(errors="replace").splitlines():
            name, found, value = line.partition(separator)
            if found and not line.startswith("#"):
                fields[name.strip()] = value.strip()
        yield fields

    return read


def _json(path: str, args: argparse.Namespace) -> Iterator[Entry]:
    try:
        document = json.loads(_read(path))
    except ValueError:
        raise CommandError("it is not JSON") from None
    yield {"kind": "entry"} | (document if isinstance(document, dict) else {"content": document})


_BY_SUFFIX: Final[dict[str, Reader]] = {
    ".timeindex": _time_index,
    ".txnindex": _aborted_index,
    ".index": _offset_index,
    ".snapshot": _snapshot,
}
_OFFSETS: Final = _checkpoint("topic", "partition", "offset")
_BY_NAME: Final[dict[str, Reader]] = {
    "leader-epoch-checkpoint": _checkpoint("epoch", "startOffset"),
    "recovery-point-offset-checkpoint": _OFFSETS,
    "replication-offset-checkpoint": _OFFSETS,
    "log-start-offset-checkpoint": _OFFSETS,
    "cleaner-offset-checkpoint": _OFFSETS,
    "partition.metadata": _properties(":"),
    "meta.properties": _properties("="),
    "quorum-state": _json,
    ".kafka_cleanshutdown": _json,
}
