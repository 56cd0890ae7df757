"""Checking the directory of the metadata log: its segments as any log's, its snapshots, and quorum-state."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.kernel.errors import DiskError, ProtocolError, TidelogError
from tidelog.log.names import PARTITION_METADATA
from tidelog.log.partition_metadata import decode_topic_id
from tidelog.log.verify.batches import BatchWalk
from tidelog.log.verify.partition import Expectation, PartitionCheck
from tidelog.log.verify.report import Files, Report, read_small
from tidelog.protocol.batch import Record
from tidelog.protocol.messages.records_metadata import RemoveTopicRecord, TopicRecord
from tidelog.protocol.records_framing import decode_metadata_record
from tidelog.protocol.uuids import METADATA_TOPIC_ID
from tidelog.raft.quorum_state import decode_quorum_state
from tidelog.raft.snapshots import SnapshotId, list_snapshots

QUORUM_STATE: Final = "quorum-state"
_OFFSET_MAX: Final = (1 << 63) - 1


class _Topics:
    """Which topics the records tell of, and their ids."""

    def __init__(self) -> None:
        self._ids: dict[bytes, str] = {}
        self._later: list[TopicRecord | RemoveTopicRecord] = []

    def note(self, record: Record, since: int | None) -> None:
        """A record of a snapshot, or of the log that follows the one that ends at `since`. (Control records have a key;
        of the others each must be one that can be replayed.)"""
        if record.key is not None:
            return
        decoded = decode_metadata_record(record.value or b"")
        if decoded is None or not isinstance(decoded[0], TopicRecord | RemoveTopicRecord):
            return
        if since is None:
            self._replay(decoded[0])
        elif record.offset >= since:
            self._later.append(decoded[0])

    def _replay(self, record: TopicRecord | RemoveTopicRecord) -> None:
        if isinstance(record, TopicRecord):
            self._ids[record.topic_id] = record.name
        else:
            self._ids.pop(record.topic_id, None)

    def all(self) -> dict[str, bytes]:
        for record in self._later:
            self._replay(record)
        return {name: topic_id for topic_id, name in self._ids.items()}


def check_metadata_log(files: Files, directory: str, report: Report, clean: bool) -> dict[str, bytes] | None:
    """Reports what is wrong; the topics and their ids when that is nothing."""
    damages, topics = report.damages, _Topics()
    names = files.list_dir(directory)
    snapshots = list_snapshots(files, directory)
    newest = snapshots[-1] if snapshots else SnapshotId(0, 0)
    note = partial(topics.note, since=newest.end_offset)
    expected = Expectation(clean, newest.end_offset, newest.end_offset, deep=note, is_metadata_log=True)
    check = PartitionCheck(files, directory, report, expected)
    check.run()
    if check.first_offset > newest.end_offset:
        what = f"the log begins at offset {check.first_offset}, and no snapshot holds what was before"
        report.damage(directory, what)
    topic_id = decode_topic_id(files.read_file(f"{directory}/{PARTITION_METADATA}") or b"")
    if topic_id not in (None, METADATA_TOPIC_ID):
        report.damage(f"{directory}/{PARTITION_METADATA}", "is not the metadata topic's id")
    for snapshot in snapshots:
        held = topics if snapshot == newest else _Topics()
        _check_snapshot(files, f"{directory}/{snapshot.file_name}", snapshot, report, held)
    _check_quorum_state(files, f"{directory}/{QUORUM_STATE}", report, max(check.latest_epoch, newest.epoch))
    for name in names:
        if name.endswith(".checkpoint.part"):
            report.note(f"{directory}/{name}", "a snapshot that was not finished, removed at the next start")
    report.end_of_partition()
    return topics.all() if report.damages == damages else None


def _check_snapshot(files: Files, path: str, snapshot: SnapshotId, report: Report, topics: _Topics) -> None:
    def trouble(what: str, position: int, offset: int | None = None) -> None:
        report.damage(path, what, position, offset)

    try:
        file = files.open(path)
        note = partial(topics.note, since=None)
        walk = BatchWalk(file, next_offset=0, epoch=0, limit=_OFFSET_MAX, trouble=trouble, advance=_ignore, deep=note)
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
