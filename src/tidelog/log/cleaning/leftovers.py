"""What a cleaning that was cut short has left in a directory: the old log or the new one, never a mix.

    .cleaned    written by the cleaner; while there is one, the old segments are whole
    .swap       complete and durable; it takes the place of every segment that its offsets span
    .deleted    an old segment that has given way

The names become durable step by step (swap.py), but within a step a power cut keeps any of the renames and undoes the
others. So each removal here that a later one relies on is synced before that.
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.ports import Disk
from tidelog.log.names import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, offsets_by_suffix, segment_name
from tidelog.log.scan import scan_headers

FILES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
"""In the order in which Kafka renames them."""


def drop_cleaned(disk: Disk, directory: str) -> None:
    """Of a cleaning that was given up, or whose node was killed. The next one syncs the directory before it swaps."""
    for name in disk.list_dir(directory):
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")


def finish_swap(disk: Disk, directory: str) -> list[int]:
    """At start, before anything of the log is looked at: go back to the old segments, or on to the new ones. The base
    offsets of those whose indexes must be made again."""
    names = disk.list_dir(directory)
    cleaned = [_offset_of(name) for name in names if name.endswith(CLEANED)]
    swaps = sorted({_offset_of(name) for name in names if name.endswith(SWAP)})
    # A cleaned file beside a swapped one: they were just getting their names, and nothing had given way.
    undone = [base for base in swaps if any(other <= base for other in cleaned)]
    for base in undone:
        undo_swap(disk, directory, base)
    drop_cleaned(disk, directory)
    return [base for base in swaps if base not in undone and not _take_over(disk, directory, base)]


def undo_swaps(disk: Disk, directory: str) -> None:
    """While the log is open: whatever was offered and not taken."""
    for base in sorted({_offset_of(name) for name in disk.list_dir(directory) if name.endswith(SWAP)}):
        undo_swap(disk, directory, base)
    drop_cleaned(disk, directory)


def undo_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Back to the old segments, none of which has given way."""
    log = _path(directory, base_offset, LOG)
    is_told = any(disk.exists(_path(directory, base_offset, suffix + CLEANED)) for suffix in FILES)
    if not is_told and disk.exists(log + SWAP):
        # Some of them alone would be taken for complete: as long as there is a cleaned one they are not.
        disk.rename(log + SWAP, log + CLEANED)
        disk.sync_dir(directory)
    for suffix in FILES:
        disk.remove(_path(directory, base_offset, suffix + SWAP))
    disk.sync_dir(directory)
    drop_cleaned(disk, directory)


def _take_over(disk: Disk, directory: str, base_offset: int) -> bool:
    """Whether its indexes are there."""
    log = _path(directory, base_offset, LOG)
    is_whole = True
    if disk.exists(log + SWAP):
        # One that is not there any more was renamed already, if it was ours; nobody can tell it from an old one.
        is_whole = all(disk.exists(_path(directory, base_offset, suffix + SWAP)) for suffix in FILES)
        # After a kill the names may be in memory only: the old ones must not go before the new ones are there.
        disk.sync_dir(directory)
        end = _end_offset(disk, log + SWAP, base_offset)
        found = offsets_by_suffix(disk.list_dir(directory))
        for suffix in FILES:
            for offset in found[suffix]:
                if base_offset <= offset < end:
                    disk.remove(_path(directory, offset, suffix))
        # An old segment that a power cut brought back later would stand beside the new one.
        disk.sync_dir(directory)
    rename_swapped(disk, directory, base_offset)
    return is_whole


def rename_swapped(disk: Disk, directory: str, base_offset: int) -> None:
    """The last step. What is not renamed yet when the power goes is renamed at the next start."""
    for suffix in FILES:
        path = _path(directory, base_offset, suffix)
        if not disk.exists(path + SWAP):
            continue
        if suffix == TXN_INDEX and _is_empty(disk, path + SWAP):
            disk.remove(path + SWAP)
        else:
            disk.rename(path + SWAP, path)


def _is_empty(disk: Disk, path: str) -> bool:
    file = disk.open(path)
    size = file.size()
    file.close()
    return size == 0


def _end_offset(disk: Disk, path: str, base_offset: int) -> int:
    """Where the segments end that it was made of: its last batch is the last of theirs, if only an empty one."""
    file, end = disk.open(path), base_offset + 1
    for _, header in scan_headers(file, 0, file.size()):
        end = header.next_offset
    file.close()
    return end


def _path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{segment_name(base_offset, suffix)}"


def _offset_of(name: str) -> int:
    """The offset in a name such as 00000000000000000007.log.cleaned, -1 when there is none."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else -1
