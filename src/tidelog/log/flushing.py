"""One log synced while the loop goes on: the few lines that await between the two halves of a flush."""

from __future__ import annotations

from tidelog.kernel.ports import Disk
from tidelog.log.partition_log import PartitionLog


async def flush(disk: Disk, log: PartitionLog) -> int:
    """Everything that was appended before the call is durable; the new recovery point."""
    flushing = log.flush_begin()
    await disk.sync(flushing.files, flushing.directories)
    return log.flush_done(flushing)
