"""The metadata quorum of one voter: `__cluster_metadata-0` as a real log, its epoch bumped and persisted per start.

It orders, stores and syncs batches of record values and gives back what is committed; what the records mean is the
business of metadata/ and controller/. With one voter, committed means synced here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.kernel.errors import DiskError, DiskFullError, TidelogError
from tidelog.kernel.ports import Clock, Disk
from tidelog.log.config import LogConfig
from tidelog.log.flushing import flush
from tidelog.log.names import parse_partition_dir, partition_dir
from tidelog.log.partition_log import AppendResult, PartitionLog
from tidelog.protocol.batch import BatchHeader, RecordInput, build_batch, iter_headers, iter_records, read_header
from tidelog.protocol.uuids import METADATA_TOPIC_ID
from tidelog.raft.control import leader_change_batch
from tidelog.raft.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from tidelog.raft.snapshots import SnapshotId, list_snapshots, read_snapshot, remove_unfinished, write_snapshot
from tidelog.raft.voters import NO_VOTERS, Voters, check_only_voter

_logger = logging.getLogger("tidelog.quorum")
METADATA_TOPIC: Final = "__cluster_metadata"
_READ_BYTES: Final = 1 << 20


class Committed(NamedTuple):
    base_offset: int
    epoch: int
    values: Sequence[bytes]


class Quorum:
    def __init__(
        self, disk: Disk, clock: Clock, log_dir: str, node_id: int, *, config: LogConfig, snapshot_bytes: int
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._node_id = node_id
        self._config = config
        self._snapshot_bytes = snapshot_bytes
        self._bytes_since_snapshot = 0
        self._voters = NO_VOTERS
        self.directory = f"{log_dir}/{METADATA_TOPIC}-0"
        self._state_path = f"{self.directory}/quorum-state"
        self.epoch = 0

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    def start(self) -> Iterator[Committed]:
        """Open the log, become leader of a new epoch, and give what was committed before. Blocks; run before
        serving."""
        now_ms = self._clock.wall_ms()
        held_until = self._newest_snapshot_end()
        self._log = PartitionLog.open(
            self._disk,
            self.directory,
            METADATA_TOPIC,
            0,
            self._config,
            now_ms=now_ms,
            clean=False,
            # Everything before a snapshot was committed: a segment from there that a power cut brought back, without
            # its neighbours, must not be taken for the end of the log.
            recovery_point=held_until,
            one_at_a_time=True,
            topic_id=METADATA_TOPIC_ID,
        )
        remove_unfinished(self._disk, self.directory)
        snapshots = list_snapshots(self._disk, self.directory)
        newest = snapshots[-1] if snapshots else None
        self._check_reaches(newest)
        if newest is None:
            self._check_not_lost()
        # Read before anything is written: a start that fails must leave the log as it was.
        held, voters = ([], NO_VOTERS) if newest is None else read_snapshot(self._disk, self.directory, newest)
        state = read_quorum_state(self._disk, self._state_path)
        self._voters = self._newest_voters(voters, newest, state)
        check_only_voter(self._node_id, self._voters.ids() or state.voters, self.directory)
        if newest is not None and self._log.log_end_offset < newest.end_offset:
            # A power cut may take a new segment, before anything in it was acknowledged; or somebody took the files.
            _logger.warning(
                "the metadata log in %s ends at offset %d: it begins anew behind its newest snapshot, at %d",
                self.directory,
                self._log.log_end_offset,
                newest.end_offset,
            )
            self._log.truncate_fully_and_start_at(newest.end_offset)
        self._take_leadership(now_ms, newest, state)
        return self._replay(newest, held)

    def _newest_snapshot_end(self) -> int:
        snapshots = list_snapshots(self._disk, self.directory) if self._disk.is_dir(self.directory) else []
        return snapshots[-1].end_offset if snapshots else 0

    def _check_not_lost(self) -> None:
        """Partitions without a record of them are what a lost metadata log looks like. With a new one they would all be
        set aside, and their topics gone."""
        if self._log.log_end_offset:
            return
        above = self.directory.rpartition("/")[0]
        named = (
            parse_partition_dir(name) for name in self._disk.list_dir(above) if f"{above}/{name}" != self.directory
        )
        if (partition := next(filter(None, named), None)) is not None:
            raise TidelogError(
                f"the metadata log in {self.directory} is empty, but there are partitions such as "
                f"{partition_dir(*partition)}: restore its .log files, or the newest snapshot (.checkpoint), there"
            )

    def _check_reaches(self, newest: SnapshotId | None) -> None:
        """Without what lies before the log it would be a cluster that has forgotten its topics."""
        begin = self._log.segments[0].base_offset
        if begin > (0 if newest is None else newest.end_offset):
            raise TidelogError(
                f"the metadata log in {self.directory} begins at offset {begin}, and no snapshot (.checkpoint) holds "
                "what was before; restore the newest snapshot there"
            )

    def _newest_voters(self, voters: Voters, newest: SnapshotId | None, state: QuorumState) -> Voters:
        """Also those of the log behind the snapshot, which is read for it only where the state does not tell. (An
        upgrade of kraft.version leaves the state as it was until the next election; the replay sees that one.)"""
        if state.version > 0 or not self._disk.read_file(self._state_path):
            for header, batch in self._batches(0 if newest is None else newest.end_offset):
                if header.is_control:
                    voters = voters.after(batch, header)
        return voters

    def _take_leadership(self, now_ms: int, newest: SnapshotId | None, state: QuorumState) -> None:
        self.epoch = max(state.leader_epoch, self._log.latest_epoch, newest.epoch if newest else 0) + 1
        # Durable before the first record of the epoch: two starts must never share one.
        version = 0 if self._voters.voters is None else 1
        mine = QuorumState(self._node_id, self.epoch, (self._node_id,), version)
        write_quorum_state(self._disk, self._state_path, mine)
        batch = leader_change_batch(self._node_id, [self._node_id], self.epoch, now_ms)
        self._log.append(batch, read_header(batch), leader_epoch=self.epoch, now_ms=now_ms)
        self._log.flush()

    def _replay(self, newest: SnapshotId | None, held: Sequence[bytes]) -> Iterator[Committed]:
        offset = 0
        if newest is not None:
            offset = newest.end_offset
            yield Committed(offset - len(held), newest.epoch, held)
        for header, batch in self._batches(offset):
            if header.is_control:
                self._voters = self._voters.after(batch, header)
            else:
                self._bytes_since_snapshot += header.size
                values = [record.value or b"" for record in iter_records(batch, header)]
                yield Committed(header.base_offset, header.leader_epoch, values)

    def _batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """From the one that holds the offset to the end of the log."""
        end = self._log.log_end_offset
        while offset < end:
            data = self._log.read(offset, _READ_BYTES, end_offset=end).data
            for position, header in iter_headers(data):
                if header.last_offset < offset:
                    continue
                yield header, memoryview(data)[position : position + header.size]
                offset = header.next_offset

    async def append(self, values: Sequence[bytes]) -> Committed:
        """Append one batch; returns when it is committed. One call at a time: the controller is serial. DiskFullError
        says that it did not happen; after any other error nobody knows."""
        result = self._append(values, self._clock.wall_ms())
        try:
            await flush(self._disk, self._log)
        except DiskFullError as error:
            raise DiskError(str(error)) from error
        return Committed(result.base_offset, self.epoch, values)

    def _append(self, values: Sequence[bytes], now_ms: int) -> AppendResult:
        batch = build_batch([RecordInput(None, value, now_ms) for value in values])
        result = self._log.append(batch, read_header(batch), leader_epoch=self.epoch, now_ms=now_ms)
        self._bytes_since_snapshot += len(batch)
        return result

    def maybe_snapshot(self, values: Callable[[], Iterable[bytes]]) -> bool:
        """Write a snapshot of everything committed once the log has grown enough, and drop what it makes needless."""
        if self._bytes_since_snapshot < self._snapshot_bytes:
            return False
        now_ms = self._clock.wall_ms()
        snapshot = SnapshotId(self._log.log_end_offset, self.epoch)
        self._bytes_since_snapshot = 0
        try:
            write_snapshot(self._disk, self.directory, snapshot, values(), now_ms, now_ms, self._voters)
        except DiskFullError as error:
            _logger.warning("%s; it is tried again when the log has grown by as much again", error)
            return False
        for older in list_snapshots(self._disk, self.directory)[:-1]:
            self._disk.remove(f"{self.directory}/{older.file_name}")
        self._log.maybe_increment_log_start(snapshot.end_offset)
        self._log.delete_old_segments(now_ms, self._log.log_end_offset)
        # At once: nobody else reads this log.
        self._log.remove_due_files(now_ms + self._config.file_delete_delay_ms)
        return True

    def close(self, farewell: Sequence[bytes] = ()) -> None:
        """The clean stop, blocking; with a last batch that nobody waits for."""
        now_ms = self._clock.wall_ms()
        if farewell:
            try:
                self._append(farewell, now_ms)
            except DiskFullError as error:
                _logger.warning("%s; the metadata will not tell that this node has stopped", error)
        self._log.close(now_ms)

    def abandon(self) -> None:
        """Let go of the files without any promise about them."""
        if hasattr(self, "_log"):
            self._log.close_files()
