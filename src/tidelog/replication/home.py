"""A log directory as its partitions see it: the logs in it, its sync rounds, and whether it is still to be trusted.

A full disk is no reason to give a directory up; anything else is, and for good: until the node starts again nothing of
it is read, written or synced.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.kernel.ports import Clock, Disk
from tidelog.log.directory import LogDirectory
from tidelog.replication.syncing import SyncRounds


class Home:
    __slots__ = ("_on_offline", "directory", "failure", "rounds")

    def __init__(self, disk: Disk, clock: Clock, directory: LogDirectory) -> None:
        self.directory = directory
        self.failure: DiskError | None = None
        self.rounds = SyncRounds(disk, clock, self.give_up)
        self._on_offline: Callable[[Home, DiskError], None] | None = None

    @property
    def directory_id(self) -> bytes:
        assert self.directory.meta is not None
        return self.directory.meta.directory_id

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def when_offline(self, callback: Callable[[Home, DiskError], None]) -> None:
        self._on_offline = callback

    def failed(self, error: DiskError) -> None:
        """A read or a write has failed. What did not fit has been rolled back and changes nothing."""
        if not isinstance(error, DiskFullError):
            self.give_up(error)

    def give_up(self, error: DiskError) -> None:
        """Also for a sync that failed for lack of room: nobody knows what of it is on the disk."""
        if self.failure is None:
            self.failure = error
            if self._on_offline is not None:
                self._on_offline(self, error)
