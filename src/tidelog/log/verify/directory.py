"""One data directory: whose it is, how it was left, its checkpoints held against its partitions, and each of these."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from tidelog.kernel.errors import DiskError
from tidelog.log.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, decode_offsets
from tidelog.log.directory import CLEAN_MARKER, LOCK, METADATA_DIR
from tidelog.log.errors import CorruptFileError, DirectoryMismatchError
from tidelog.log.meta_properties import META_PROPERTIES, MetaProperties, decode_meta
from tidelog.log.names import (
    DELETE_DIR,
    FUTURE_DIR,
    LOG,
    PARTITION_METADATA,
    STRAY_DIR,
    TEMPORARY,
    parse_partition_dir,
    partition_dir,
)
from tidelog.log.partition_metadata import decode_topic_id
from tidelog.log.verify.partition import Expectation, PartitionCheck
from tidelog.log.verify.report import Files, Report, read_small
from tidelog.protocol.uuids import uuid_to_text

Name = tuple[str, int]

_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_OTHERS: Final = (*_CHECKPOINTS, META_PROPERTIES, CLEAN_MARKER, LOCK, "bootstrap.checkpoint")
_ON_THE_WAY: Final = {
    DELETE_DIR: "deleted, and removed at the next start",
    STRAY_DIR: "a partition that nobody knew of when it was set aside",
    FUTURE_DIR: "a partition on its way from another directory",
}
# Always compacted, also before a cleaner has written down how far it came.
_COMPACTED: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_OFFSET_MAX: Final = (1 << 63) - 1


class DirectoryCheck:
    def __init__(
        self,
        files: Files,
        path: str,
        report: Report,
        *,
        deep: bool = False,
        metadata: Callable[[Files, str, Report, bool], dict[str, bytes] | None] | None = None,
    ) -> None:
        """`metadata` checks the directory of the metadata log, and tells the topics' ids: others know how."""
        self._files = files
        self._path = path
        self._report = report
        self._deep = deep
        self._metadata = metadata
        self._names = files.list_dir(path)
        self.partitions = self._find_partitions()
        self.is_clean = CLEAN_MARKER in self._names
        self.meta: MetaProperties | None = None
        self.topics: dict[str, bytes] | None = None
        """Their ids, as the metadata log has them; it may be in another directory of the node."""

    def _find_partitions(self) -> list[Name]:
        parsed = [
            parse_partition_dir(name)
            for name in self._names
            if name != METADATA_DIR and self._files.is_dir(f"{self._path}/{name}")
        ]
        return sorted(name for name in parsed if name is not None)

    @property
    def has_metadata_log(self) -> bool:
        return METADATA_DIR in self._names

    @property
    def is_data_directory(self) -> bool:
        known = (META_PROPERTIES, METADATA_DIR, RECOVERY_POINTS, HIGH_WATERMARKS)
        return any(name in self._names for name in known) or bool(self.partitions)

    def log_bytes(self) -> int:
        """How much there is to read: what the progress counts."""
        directories = [partition_dir(*name) for name in self.partitions]
        if self.has_metadata_log:
            directories.append(METADATA_DIR)
        total = 0
        for directory in directories:
            for name in self._files.list_dir(f"{self._path}/{directory}"):
                if name.endswith(LOG):
                    file = self._files.open(f"{self._path}/{directory}/{name}")
                    total += file.size()
                    file.close()
        return total

    def run(self) -> None:
        self._check_meta()
        self._check_marker()
        self._check_names()
        points = {name: self._read_checkpoint(name) for name in _CHECKPOINTS}
        self._report.end_of_partition()
        if self.has_metadata_log and self._metadata is not None:
            self.topics = self._metadata(self._files, f"{self._path}/{METADATA_DIR}", self._report, self.is_clean)
        for name in self.partitions:
            self._check_partition(name, points)

    # Small files

    def _check_meta(self) -> None:
        path = f"{self._path}/{META_PROPERTIES}"
        data = read_small(self._files, path, self._report)
        if data is None:
            self._report.damage(path, "missing: it is not known whose directory this is")
            return
        try:
            self.meta = decode_meta(data, path)
        except DirectoryMismatchError as error:
            self._report.damage(path, str(error).removeprefix(path).strip())

    def _check_marker(self) -> None:
        path = f"{self._path}/{CLEAN_MARKER}"
        if not self.is_clean:
            self._report.note(self._path, "was not stopped cleanly: the next start checks behind the recovery points")
            return
        data = read_small(self._files, path, self._report) or b""
        try:
            int(json.loads(data)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            self._report.damage(path, "does not tell the broker's epoch; the stop counts as clean nevertheless")

    def _check_names(self) -> None:
        live = {partition_dir(*name) for name in self.partitions}
        for name in self._names:
            if name in live or name in _OTHERS or name == METADATA_DIR or name.startswith(LOCK):
                continue
            why = next((why for suffix, why in _ON_THE_WAY.items() if name.endswith(suffix)), None)
            if why is None:
                leftover = name.endswith(TEMPORARY)
                why = "left by a write that did not finish" if leftover else "not known in a data directory"
            self._report.note(f"{self._path}/{name}", why)

    def _read_checkpoint(self, name: str) -> dict[Name, int]:
        path = f"{self._path}/{name}"
        data = read_small(self._files, path, self._report)
        if data is None:
            self._missing_checkpoint(name, path)
            return {}
        try:
            offsets = decode_offsets(data, path)
        except CorruptFileError as error:
            self._report.damage(path, str(error).removeprefix(path).strip())
            return {}
        there = set(self.partitions)
        for topic, partition in sorted(offsets.keys() - there):
            self._report.note(path, f"names {topic}-{partition}, which is not here")
        return offsets

    def _missing_checkpoint(self, name: str, path: str) -> None:
        if name == CLEANER_OFFSETS:
            return  # there is none before anything was compacted
        if self.is_clean:
            self._report.damage(path, "missing after a clean stop")
        elif self.partitions:
            self._report.note(path, "missing: as if it had never been written")

    # Partitions

    def _check_partition(self, name: Name, points: dict[str, dict[Name, int]]) -> None:
        directory = f"{self._path}/{partition_dir(*name)}"
        recovery_point = points[RECOVERY_POINTS].get(name, 0)
        log_start = points[LOG_STARTS].get(name, 0)
        # The file tells how far the last whole cleaning came; one that was cut short has been further.
        is_cleaned = name[0] in _COMPACTED or name in points[CLEANER_OFFSETS]
        cleaned = _OFFSET_MAX if is_cleaned else 0
        deep = (lambda record: None) if self._deep else None
        check = PartitionCheck(
            self._files,
            directory,
            self._report,
            Expectation(self.is_clean, recovery_point, log_start, cleaned, deep),
        )
        try:
            check.run()
        except DiskError as error:
            self._report.damage(directory, str(error))
            return
        self._hold_against(name, check, points)
        if self.topics is not None:
            self._check_topic(name, directory, self.topics.get(name[0]))

    def _check_topic(self, name: Name, directory: str, topic_id: bytes | None) -> None:
        path = f"{directory}/{PARTITION_METADATA}"
        found = decode_topic_id(self._files.read_file(path) or b"")
        if topic_id is None:
            self._report.note(directory, "the metadata knows no such topic: it is set aside at the next start")
        elif found is not None and found != topic_id:
            what = f"says topic id {uuid_to_text(found)}, the metadata {uuid_to_text(topic_id)} for {name[0]}"
            self._report.damage(path, what)

    def _hold_against(self, name: Name, check: PartitionCheck, points: dict[str, dict[Name, int]]) -> None:
        """(The recovery point the partition's own check has compared.)"""
        said = f"says %s for {name[0]}-{name[1]}, whose log ends at {check.end_offset}"
        high_watermark = points[HIGH_WATERMARKS].get(name, 0)
        if high_watermark > check.end_offset:
            path = f"{self._path}/{HIGH_WATERMARKS}"
            if self.is_clean or high_watermark <= points[RECOVERY_POINTS].get(name, 0):
                self._report.damage(path, said % high_watermark)
            else:
                self._report.note(path, f"{said % high_watermark}; not all of it had been synced")
        log_start = points[LOG_STARTS].get(name, 0)
        if log_start > check.end_offset:
            self._report.damage(f"{self._path}/{LOG_STARTS}", said % log_start)
