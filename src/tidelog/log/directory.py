"""One data directory: its lock, its identity, its partitions and the checkpoints that tell how far each is safe.

Which partitions ought to exist, and with which configuration, others know; here is what lies on the disk.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.kernel.errors import DiskFullError
from tidelog.kernel.ports import Disk, File, Lock
from tidelog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from tidelog.log.config import LogConfig
from tidelog.log.errors import CorruptFileError, DirectoryMismatchError
from tidelog.log.meta_properties import META_PROPERTIES, MetaProperties, decode_meta
from tidelog.log.names import DELETE_DIR, STRAY_DIR, parse_partition_dir, parted_dir, partition_dir
from tidelog.log.partition_log import PartitionLog
from tidelog.log.unsynced import FlushRound

logger = logging.getLogger(__name__)

LOCK: Final = ".lock"
CLEAN_MARKER: Final = ".kafka_cleanshutdown"
METADATA_DIR: Final = "__cluster_metadata-0"

Name = tuple[str, int]


class Checkpoint(NamedTuple):
    files: Sequence[tuple[str, bytes]]
    """Path and content of each."""
    stale: frozenset[Name]
    """Partitions that were gone when it was made: it no longer names them."""


class LogDirectory:
    def __init__(self, disk: Disk, path: str, lock: Lock) -> None:
        self._disk = disk
        self._lock = lock
        self._removals: list[tuple[int, str]] = []
        self.strays: list[str] = []
        """Paths of partitions that an earlier start has set aside."""
        self.path = path
        self.meta: MetaProperties | None = None
        self.partitions: dict[Name, PartitionLog] = {}
        self.was_clean = False
        self._is_marked = False
        self._was_cleaned = False
        self.previous_broker_epoch = -1
        self.high_watermarks: dict[Name, int] = {}
        """As the last checkpoint told them; the caller owns them from then on."""
        self._recovery_points: dict[Name, int] = {}
        self._log_starts: dict[Name, int] = {}
        self._cleaned: dict[Name, int] = {}
        # Partitions that are gone, but named in a checkpoint on disk: a new one of that name must not inherit it.
        self._stale: set[Name] = set()

    @classmethod
    def open(cls, disk: Disk, path: str) -> LogDirectory:
        """Make the directory if need be and take it: DirectoryLockedError when another node has it."""
        _make_durable_dirs(disk, path)
        directory = cls(disk, path, disk.lock(f"{path}/{LOCK}"))
        try:
            directory._read()
        except BaseException:
            directory._lock.release()
            raise
        return directory

    def _read(self) -> None:
        data = self._disk.read_file(f"{self.path}/{META_PROPERTIES}")
        if data is not None:
            self.meta = decode_meta(data, f"{self.path}/{META_PROPERTIES}")
        self._recovery_points = self._read_checkpoint(RECOVERY_POINTS)
        self._log_starts = self._read_checkpoint(LOG_STARTS)
        self._cleaned = self._read_checkpoint(CLEANER_OFFSETS)
        self._was_cleaned = bool(self._cleaned)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARKS)
        self._drop_stale()
        self._read_marker()
        for name in self._disk.list_dir(self.path):
            if name.endswith(DELETE_DIR):
                self._removals.append((0, name))
            elif name.endswith(STRAY_DIR):
                self.strays.append(f"{self.path}/{name}")

    def _drop_stale(self) -> None:
        there = set(self.found())
        for offsets in (self._recovery_points, self._log_starts, self._cleaned, self.high_watermarks):
            for name in offsets.keys() - there:
                del offsets[name]
                self._stale.add(name)

    def _read_marker(self) -> None:
        """The sign of a clean stop. A start that fails before it opens a log leaves it to whoever comes next."""
        data = self._disk.read_file(f"{self.path}/{CLEAN_MARKER}")
        if data is None:
            return
        self.was_clean = self._is_marked = True
        try:
            self.previous_broker_epoch = int(json.loads(data)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            self.previous_broker_epoch = -1

    def _remove_marker(self) -> None:
        """Durable before any log is written: a marker that a power cut brings back would vouch for a torn one."""
        if self._is_marked:
            self._is_marked = False
            self._disk.remove(f"{self.path}/{CLEAN_MARKER}")
            self._disk.sync_dir(self.path)

    def _read_checkpoint(self, name: str) -> dict[Name, int]:
        path = f"{self.path}/{name}"
        try:
            return decode_offsets(self._disk.read_file(path) or b"", path)
        except CorruptFileError as error:
            logger.warning("%s; starting without it, which takes longer", error)
            return {}

    def format(self, meta: MetaProperties) -> None:
        """Write down whose directory this is. DirectoryMismatchError for one that has been in use: who owns it was
        known once, and to guess would mix up two clusters."""
        if self.found() or self._disk.is_dir(f"{self.path}/{METADATA_DIR}"):
            raise DirectoryMismatchError(
                f"{self.path}/{META_PROPERTIES} is missing, but the directory holds a log: restore the file "
                "(version=1, cluster.id, node.id, directory.id)"
            )
        self._disk.replace_file(f"{self.path}/{META_PROPERTIES}", meta.encode())
        self.meta = meta

    def space(self) -> tuple[int, int]:
        """(all bytes, free bytes) of its file system."""
        return self._disk.space(self.path)

    # Partitions

    def found(self) -> list[Name]:
        """The partitions on the disk, without the metadata log, which is not this class's to open."""
        names = (name for name in self._disk.list_dir(self.path) if name != METADATA_DIR)
        parsed = (parse_partition_dir(name) for name in names if self._disk.is_dir(f"{self.path}/{name}"))
        return [name for name in parsed if name is not None]

    def load(
        self,
        config_for: Callable[[str], LogConfig],
        now_ms: int,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Open every partition that is there; after a clean stop that is quick, otherwise their tails are checked, and
        what was found is made durable: nothing is served that the next crash could take or that it would not check."""
        names = self.found()
        for number, (topic, partition) in enumerate(names):
            self._open(topic, partition, config_for(topic), now_ms, topic_id=None, clean=self.was_clean)
            if progress is not None:
                progress(number + 1, len(names))
        if not self.was_clean and names:
            self._flush_all()
            self.checkpoint()

    def create_partition(
        self, topic: str, partition: int, config: LogConfig, *, topic_id: bytes, now_ms: int
    ) -> PartitionLog:
        """A new partition, or the one that is there already: LogError when that belongs to another topic's id."""
        known = self.partitions.get((topic, partition))
        if known is not None:
            return known
        if (topic, partition) in self._stale:
            self.checkpoint()
        return self._open(topic, partition, config, now_ms, topic_id=topic_id, clean=False)

    def _open(
        self, topic: str, partition: int, config: LogConfig, now_ms: int, *, topic_id: bytes | None, clean: bool
    ) -> PartitionLog:
        self._remove_marker()
        name = (topic, partition)
        log = PartitionLog.open(
            self._disk,
            f"{self.path}/{partition_dir(topic, partition)}",
            topic,
            partition,
            config,
            now_ms=now_ms,
            clean=clean,
            recovery_point=self._recovery_points.pop(name, 0),
            log_start_offset=self._log_starts.pop(name, 0),
            cleaned_to=self._cleaned.pop(name, -1),
            topic_id=topic_id,
        )
        self.partitions[name] = log
        return log

    def delete_partition(self, topic: str, partition: int, *, unique_hex: str, now_ms: int) -> None:
        """Rename the directory now; take_due has it when the delay is over."""
        log = self.partitions[topic, partition]
        try:
            name = self._part_with(log, unique_hex, DELETE_DIR)
        except DiskFullError:
            # Not even room for a name: deleting is what helps.
            self._disk.remove_tree(log.directory)
            return
        self._removals.append((now_ms + log.config.file_delete_delay_ms, name))

    def set_aside(self, topic: str, partition: int, *, unique_hex: str) -> str:
        """Rename the directory of a partition that nobody knows of, and keep it; its new path."""
        return f"{self.path}/{self._part_with(self.partitions[topic, partition], unique_hex, STRAY_DIR)}"

    def _part_with(self, log: PartitionLog, unique_hex: str, suffix: str) -> str:
        del self.partitions[log.topic, log.partition]
        self.high_watermarks.pop((log.topic, log.partition), None)
        self._stale.add((log.topic, log.partition))
        log.close_files()
        name = parted_dir(log.topic, log.partition, unique_hex, suffix)
        self._disk.rename(log.directory, f"{self.path}/{name}")
        return name

    @property
    def removals(self) -> int:
        """Deleted directories that are still there."""
        return len(self._removals)

    @property
    def next_removal_ms(self) -> int | None:
        return min((due for due, _ in self._removals), default=None)

    def take_due(self, now_ms: int, *, limit: int = 2**31) -> list[str]:
        """Deleted directories whose delay is over, at most so many in one go: whoever asks removes them, beside the
        loop. What is still there when the process ends is due at the next start."""
        due = [removal for removal in self._removals if removal[0] <= now_ms][:limit]
        for removal in due:
            self._removals.remove(removal)
        return [f"{self.path}/{name}" for _, name in due]

    def truncate_to(self, log: PartitionLog, offset: int) -> None:
        """Truncate, but lower the recovery point on disk first: otherwise a crash would trust what is written next."""
        self._lower_points(log, log.truncation_point(offset))
        log.truncate_to(offset)

    def truncate_fully_and_start_at(self, log: PartitionLog, offset: int) -> None:
        """The same for a log that begins again, empty, somewhere else."""
        self._lower_points(log, offset)
        log.truncate_fully_and_start_at(offset)

    def _lower_points(self, log: PartitionLog, end: int) -> None:
        if end < max(log.recovery_point, log.cleaned_to):
            log.recovery_point = min(log.recovery_point, end)
            log.cleaned_to = min(log.cleaned_to, end)
            self.checkpoint()

    # Checkpoints

    def checkpoint_begin(self, high_watermarks: Mapping[Name, int] | None = None) -> Checkpoint:
        """The three files as of now, and the cleaner's once there is one, for Disk.replace_files or replace_file; then
        checkpoint_done. With the high watermarks of the last time when none are given."""
        if high_watermarks is not None:
            self.high_watermarks = dict(high_watermarks)
        logs = self.partitions.items()
        recovery_points = self._recovery_points | {name: log.recovery_point for name, log in logs}
        log_starts = self._log_starts | {
            name: log.log_start_offset for name, log in logs if log.log_start_offset > log.segments[0].base_offset
        }
        files = {RECOVERY_POINTS: recovery_points, LOG_STARTS: log_starts, HIGH_WATERMARKS: self.high_watermarks}
        encoded = [(f"{self.path}/{name}", encode_offsets(offsets)) for name, offsets in files.items()]
        cleaned = self.cleaner_checkpoint()
        if self._was_cleaned:
            encoded.append(cleaned)
        return Checkpoint(encoded, frozenset(self._stale))

    def cleaner_checkpoint(self) -> tuple[str, bytes]:
        """Path and content of the file that tells how far each log was cleaned."""
        logs = self.partitions.items()
        cleaned = self._cleaned | {name: log.cleaned_to for name, log in logs if log.cleaned_to >= 0}
        self._was_cleaned = self._was_cleaned or bool(cleaned)
        return f"{self.path}/{CLEANER_OFFSETS}", encode_offsets(cleaned)

    def checkpoint_done(self, checkpoint: Checkpoint) -> None:
        self._stale -= checkpoint.stale

    def checkpoint(self, high_watermarks: Mapping[Name, int] | None = None) -> None:
        """The same in one, blocking."""
        begun = self.checkpoint_begin(high_watermarks)
        for path, data in begun.files:
            self._disk.replace_file(path, data)
        self.checkpoint_done(begun)

    def _flush_all(self) -> None:
        rounds = [(log, log.flush_begin()) for log in self.partitions.values()]
        self._sync([round for _, round in rounds])
        for log, round in rounds:
            log.flush_done(round)

    def _sync(self, rounds: list[FlushRound]) -> None:
        """All in one go: the disk knows a cheaper way for many files."""
        files: list[File] = []
        directories: dict[str, None] = {}
        for round in rounds:
            files += round.files
            directories |= dict.fromkeys(round.directories)
        self._disk.sync_now(files, tuple(directories))

    # Stopping

    def close(self, now_ms: int, *, high_watermarks: Mapping[Name, int], broker_epoch: int = -1) -> None:
        """The clean stop: every log complete and durable, then the checkpoints, then the marker, then the lock."""
        rounds = [(log, log.close_begin(now_ms)) for log in self.partitions.values()]
        self._sync([round for _, round in rounds])
        for log, round in rounds:
            log.close_done(round)
        self.checkpoint(high_watermarks)
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.replace_file(f"{self.path}/{CLEAN_MARKER}", marker.encode())
        self._lock.release()

    def abandon(self) -> None:
        """Let go without any promise: the next start checks the logs."""
        for log in self.partitions.values():
            log.close_files()
        self._lock.release()


def _make_durable_dirs(disk: Disk, path: str) -> None:
    """A directory is only as durable as its name in the one above, and that one's name in turn."""
    above: list[str] = []
    while path not in ("", ".", "/") and not disk.is_dir(path):
        above.append(path)
        path = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    for made in reversed(above):
        disk.make_dirs(made)
        disk.sync_dir(made.rpartition("/")[0] or ("/" if made.startswith("/") else "."))
