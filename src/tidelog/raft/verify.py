"""Checking the directory of the metadata log: its segments as any log's, its snapshots, and quorum-state."""

from __future__ import annotations

from typing import Final

from tidelog.kernel.errors import DiskError, ProtocolError, TidelogError
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import decode_topic_id
from tidelog.log.verify.batches import BatchWalk
from tidelog.log.verify.partition import Expectation, PartitionCheck
from tidelog.log.verify.report import Files, Report, read_small
from tidelog.protocol.batch import Record
from tidelog.protocol.records_framing import decode_metadata_record
from tidelog.protocol.uuids import METADATA_TOPIC_ID
from tidelog.raft.quorum_state import decode_quorum_state
from tidelog.raft.snapshots import SnapshotId, list_snapshots

QUORUM_STATE: Final = "quorum-state"
_OFFSET_MAX: Final = (1 << 63) - 1


def check_metadata_log(files: Files, directory: str, report: Report, clean: bool) -> None:
    names = files.list_dir(directory)
    snapshots = list_snapshots(files, directory)
    newest = snapshots[-1] if snapshots else SnapshotId(0, 0)
    expected = Expectation(clean, newest.end_offset, newest.end_offset, deep=_decode, is_metadata_log=True)
    check = PartitionCheck(files, directory, report, expected)
    check.run()
    if check.first_offset > newest.end_offset:
        what = f"the log begins at offset {check.first_offset}, and no snapshot holds what was before"
        report.damage(directory, what)
    topic_id = decode_topic_id(files.read_file(f"{directory}/{PARTITION_METADATA}") or b"")
    if topic_id not in (None, METADATA_TOPIC_ID):
        report.damage(f"{directory}/{PARTITION_METADATA}", "is not the metadata topic's id")
    for snapshot in snapshots:
        _check_snapshot(files, f"{directory}/{snapshot.file_name}", snapshot, report)
    _check_quorum_state(files, f"{directory}/{QUORUM_STATE}", report, max(check.latest_epoch, newest.epoch))
    for name in names:
        if name.endswith(".checkpoint.part"):
            report.note(f"{directory}/{name}", "a snapshot that was not finished, removed at the next start")
    report.end_of_partition()


def _decode(record: Record) -> None:
    """Control records have a key, and their own form; of the others each must be one that can be replayed."""
    if record.key is None:
        decode_metadata_record(record.value or b"")


def _check_snapshot(files: Files, path: str, snapshot: SnapshotId, report: Report) -> None:
    def trouble(what: str, position: int, offset: int | None = None) -> None:
        report.damage(path, what, position, offset)

    try:
        file = files.open(path)
        walk = BatchWalk(
            file, next_offset=0, epoch=0, limit=_OFFSET_MAX, trouble=trouble, advance=_ignore, deep=_decode
        )
        kinds = [(header.is_control, header.leader_epoch) for _, header in walk.batches()]
        file.close()
    except (DiskError, ProtocolError) as error:
        report.damage(path, str(error))
        return
    report.batches += walk.count
    if not walk.damaged and (len(kinds) < 2 or not kinds[0][0] or not kinds[-1][0]):
        report.damage(path, "is not complete: it has no header or no footer")
    elif any(epoch != snapshot.epoch for _, epoch in kinds):
        report.damage(path, f"holds batches that are not of epoch {snapshot.epoch}")


def _ignore(count: int) -> None:
    """Snapshots are small beside the logs: progress does without them."""


def _check_quorum_state(files: Files, path: str, report: Report, epoch: int) -> None:
    data = read_small(files, path, report)
    if data is None:
        report.damage(path, "missing: the vote and the epoch are not known")
        return
    try:
        state = decode_quorum_state(data, path)
    except TidelogError as error:
        report.damage(path, str(error).removeprefix(path).strip())
        return
    if state.leader_epoch < epoch:
        report.damage(path, f"says epoch {state.leader_epoch}, but the log has {epoch}")
