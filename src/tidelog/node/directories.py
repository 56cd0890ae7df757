"""A node's log directories at its start: taken, told apart, and new ones given an identity.

One that cannot be read is left offline and the others serve on; the one with the metadata log must be there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random

from tidelog.kernel.errors import DiskError, DiskFullError, TidelogError
from tidelog.kernel.ports import Disk
from tidelog.log.directory import LogDirectory
from tidelog.log.meta_properties import MetaProperties
from tidelog.protocol.uuids import random_uuid, uuid_to_text

_log = logging.getLogger("tidelog.node")


class Directories:
    """The metadata directory is one of the log directories unless metadata.log.dir names another."""

    def __init__(self, disk: Disk, random: Random, log_dirs: Sequence[str], metadata_dir: str | None) -> None:
        self._disk = disk
        self._random = random
        self._paths = list(dict.fromkeys(log_dirs))
        self._metadata_path = metadata_dir if metadata_dir is not None else self._paths[0]
        self.opened: dict[str, LogDirectory] = {}
        self.failed: dict[str, DiskError] = {}
        """Those that could not be opened, by their path."""

    @property
    def metadata(self) -> LogDirectory:
        return self.opened[self._metadata_path]

    @property
    def data(self) -> list[LogDirectory]:
        """Those with partitions, in the order of the setting."""
        return [self.opened[path] for path in self._paths if path in self.opened]

    def open(self) -> None:
        for path in dict.fromkeys([self._metadata_path, *self._paths]):
            try:
                self.opened[path] = LogDirectory.open(self._disk, path)
            except DiskError as error:
                if path == self._metadata_path or isinstance(error, DiskFullError):
                    raise
                _log.critical("the log directory %s is offline: %s", path, error)
                self.failed[path] = error
        if not self.data:
            raise TidelogError("none of the log directories (log.dirs) can be used")

    def identify(self, node_id: int, cluster_id: str | None) -> str:
        """Check whose they are and write down the identity of the new ones; the id of the cluster."""
        known = [directory.meta.cluster_id for directory in self.opened.values() if directory.meta is not None]
        cluster_id = cluster_id or (known[0] if known else uuid_to_text(random_uuid(self._random)))
        ids: dict[bytes, str] = {}
        for path, directory in self.opened.items():
            if directory.meta is None:
                directory.format(MetaProperties(cluster_id, node_id, random_uuid(self._random)))
            assert directory.meta is not None
            directory.meta.check(path, node_id=node_id, cluster_id=cluster_id)
            other = ids.setdefault(directory.meta.directory_id, path)
            if other != path:
                raise TidelogError(f"{other} and {path} have the same directory.id: one is a copy of the other")
        return cluster_id

    def abandon(self) -> None:
        """Let go of files and locks, also of those that a clean stop has closed already."""
        for directory in self.opened.values():
            directory.abandon()
