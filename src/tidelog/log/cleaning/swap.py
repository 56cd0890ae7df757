"""A cleaned segment takes the place of those that it was made of, in the steps and under the names that Kafka uses:

    1   .cleaned becomes .swap
    2   the old ones become .deleted; readers get the new one, under its .swap name
    3   .swap goes from the names

After each step the directory is synced before the next: cut short at any point, the next start finds the old log or the
new one (leftovers.py). Who reads an old segment goes on with it, as when retention takes one away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

from tidelog.kernel.errors import DiskFullError, TidelogError
from tidelog.kernel.ports import Disk
from tidelog.log.cleaning.leftovers import FILES, undo_swap
from tidelog.log.names import CLEANED, SWAP, segment_name
from tidelog.log.partition_log import PartitionLog


class SwapGivenUp(TidelogError):
    """The log was truncated or closed meanwhile: what was cleaned is not of it any more."""


def swap_steps(disk: Disk, log: PartitionLog, base_offsets: Sequence[int], now_ms: int) -> Iterator[None]:
    """Between two steps the directory must be synced. SwapGivenUp, before anything was changed, when the log has."""
    olds = log.segments_at(base_offsets)
    if olds is None or log.is_closed:
        raise SwapGivenUp
    directory, base_offset = log.directory, base_offsets[0]
    truncations = log.truncations
    _offer(disk, directory, base_offset)
    yield
    if log.is_closed or log.truncations != truncations:
        raise SwapGivenUp
    log.replace_segments(olds, now_ms)
    yield
    if not log.is_closed and log.truncations == truncations:
        log.settle_swap()


def _offer(disk: Disk, directory: str, base_offset: int) -> None:
    try:
        for suffix in FILES:
            path = f"{directory}/{segment_name(base_offset, suffix)}"
            disk.rename(path + CLEANED, path + SWAP)
    except DiskFullError:
        undo_swap(disk, directory, base_offset)
        raise


async def swap(disk: Disk, log: PartitionLog, base_offsets: Sequence[int], now_ms: int) -> None:
    """Beside the loop's other work. Who cancels it, to stop the node, waits until the swap is whole."""
    steps = swap_steps(disk, log, base_offsets, now_ms)
    for _ in steps:
        try:
            await disk.sync((), (log.directory,))
        except asyncio.CancelledError:
            with contextlib.suppress(SwapGivenUp):
                disk.sync_dir(log.directory)
                finish_now(disk, log, steps)
            raise


def finish_now(disk: Disk, log: PartitionLog, steps: Iterator[None]) -> None:
    """The rest of it, blocking."""
    for _ in steps:
        disk.sync_dir(log.directory)
