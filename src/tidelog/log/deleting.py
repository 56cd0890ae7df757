"""How a file of a log leaves: renamed now, removed later, for the sake of a reader that is still at it."""

from __future__ import annotations

from tidelog.kernel.errors import DiskFullError
from tidelog.kernel.ports import Disk
from tidelog.log.names import DELETED


def rename_deleted(disk: Disk, path: str) -> list[str]:
    """What is to be removed when its delay is over: nothing where there was not even room for the new name."""
    try:
        disk.rename(path, path + DELETED)
    except DiskFullError:
        disk.remove(path)
        return []
    return [path + DELETED]
