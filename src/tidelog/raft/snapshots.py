"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint`, whole or not there at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from tidelog.kernel.errors import DiskFullError, ProtocolError, TidelogError
from tidelog.kernel.ports import Disk
from tidelog.protocol.batch import RecordInput, build_batch, crc_is_valid, iter_headers, iter_records, read_header
from tidelog.raft.control import snapshot_footer_batch, snapshot_header_batch
from tidelog.raft.voters import NO_VOTERS, Voters

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART: Final = ".part"
_BATCH_RECORDS: Final = 1000


class SnapshotId(NamedTuple):
    end_offset: int
    """Exclusive: the first offset of the log that is not in the snapshot."""
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class _Lister(Protocol):
    def list_dir(self, path: str) -> list[str]: ...


def list_snapshots(disk: _Lister, directory: str) -> list[SnapshotId]:
    """Oldest first."""
    found = [_NAME.fullmatch(name) for name in disk.list_dir(directory)]
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def remove_unfinished(disk: Disk, directory: str) -> None:
    """What a crash left of a snapshot that was being written."""
    for name in disk.list_dir(directory):
        if name.endswith(_PART):
            disk.remove(f"{directory}/{name}")


def write_snapshot(
    disk: Disk,
    directory: str,
    snapshot: SnapshotId,
    values: Iterable[bytes],
    last_timestamp_ms: int,
    now_ms: int,
    voters: Voters = NO_VOTERS,
) -> None:
    path = f"{directory}/{snapshot.file_name}"
    part = path + _PART
    disk.remove(part)
    file = disk.open(part, create=True)
    try:
        header = snapshot_header_batch(last_timestamp_ms, snapshot.epoch, now_ms, voters.records())
        for batch in _batches(header, values, snapshot.epoch, now_ms):
            if file.append([batch]) != len(batch):
                raise DiskFullError(f"no room for the metadata snapshot {path}")
        file.sync()
    except DiskFullError:
        disk.remove(part)
        raise
    finally:
        file.close()
    disk.rename(part, path)
    disk.sync_dir(directory)


def _batches(header: bytearray, values: Iterable[bytes], epoch: int, now_ms: int) -> Iterator[bytearray]:
    yield header
    offset = read_header(header).next_offset
    pending: list[RecordInput] = []
    for value in values:
        pending.append(RecordInput(None, value, now_ms))
        if len(pending) == _BATCH_RECORDS:
            yield build_batch(pending, base_offset=offset, leader_epoch=epoch)
            offset += len(pending)
            pending = []
    if pending:
        yield build_batch(pending, base_offset=offset, leader_epoch=epoch)
        offset += len(pending)
    yield snapshot_footer_batch(offset, epoch, now_ms)


def read_snapshot(disk: Disk, directory: str, snapshot: SnapshotId) -> tuple[list[bytes], Voters]:
    """The values of its data records, and what its control records tell. A damaged snapshot is an error, never a
    shorter one."""
    path = f"{directory}/{snapshot.file_name}"
    data = disk.read_file(path) or b""
    try:
        return _read_values(data, path)
    except ProtocolError as error:
        raise TidelogError(f"the metadata snapshot {path} is damaged: {error}") from None


def _read_values(data: bytes, path: str) -> tuple[list[bytes], Voters]:
    values: list[bytes] = []
    voters = NO_VOTERS
    end = 0
    complete = False
    for position, header in iter_headers(data):
        batch = memoryview(data)[position : position + header.size]
        if not crc_is_valid(batch, header):
            raise TidelogError(f"the metadata snapshot {path} is damaged at byte {position}")
        end = position + header.size
        if header.is_control:
            complete = position > 0
            voters = voters.after(batch, header)
            continue
        values.extend(record.value or b"" for record in iter_records(batch, header))
    if end != len(data) or not complete:
        raise TidelogError(f"the metadata snapshot {path} is not complete")
    return values, voters
