"""The control batches of the metadata log and its snapshots: leader change, snapshot header and footer."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from tidelog.protocol.batch import CONTROL, RecordInput, build_batch
from tidelog.protocol.codec import encode
from tidelog.protocol.messages.records_control import LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord

LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4

_KEY: Final = Struct(">hh")


def _control_batch(kind: int, message: Any, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    return _batch([(kind, encode(message, 0))], base_offset, epoch, now_ms)


def _batch(entries: Iterable[tuple[int, bytes]], base_offset: int, epoch: int, now_ms: int) -> bytearray:
    records = [RecordInput(_KEY.pack(0, kind), value, now_ms) for kind, value in entries]
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch, attributes=CONTROL)


def leader_change_batch(leader_id: int, voters: list[int], epoch: int, now_ms: int) -> bytearray:
    shape = LeaderChangeMessage.Voter
    everyone = [shape(voter_id=voter) for voter in voters]
    message = LeaderChangeMessage(leader_id=leader_id, voters=everyone, granting_voters=[shape(voter_id=leader_id)])
    return _control_batch(LEADER_CHANGE, message, 0, epoch, now_ms)


def snapshot_header_batch(
    last_timestamp_ms: int, epoch: int, now_ms: int, more: Iterable[tuple[int, bytes]] = ()
) -> bytearray:
    """With further control records (kind, value), such as those that name the voters."""
    message = SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp_ms)
    return _batch([(SNAPSHOT_HEADER, encode(message, 0)), *more], 0, epoch, now_ms)


def snapshot_footer_batch(base_offset: int, epoch: int, now_ms: int) -> bytearray:
    return _control_batch(SNAPSHOT_FOOTER, SnapshotFooterRecord(), base_offset, epoch, now_ms)
