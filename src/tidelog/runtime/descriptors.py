"""A bounded pool of descriptors: who may lose his, and who must keep it.

A file with unsynced data keeps its descriptor: when the system drops the inode of a closed file, it may drop a write
error with it. Such files are `kept`, all others stand in line by their last use. Nothing here searches among the kept
ones: thousands of partitions may be written before a sync.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final, Protocol

_FILES_MAX: Final = 8192
_RESERVE: Final = 256
"""For what is neither: listeners, the loop's own, connections that are accepted only to be turned away."""


def descriptors_max() -> int | None:
    """How many the process may open, None where nobody counts."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit < 0 else limit


def raise_descriptors_max() -> None:
    """As far as is allowed: the usual 1,024 is the start of a range, not advice."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS has a limit below the one that it names
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def files_share(limit: int) -> int:
    """Half, while that is not plenty: the rest is for connections."""
    return min(limit // 2, _FILES_MAX)


def connections_max() -> int:
    limit = descriptors_max()
    if limit is None:
        return 2**31 - 1
    return max(limit - files_share(limit) - min(_RESERVE, limit // 8), 1)


class Holder(Protocol):
    """A file as the pool sees it: `fd` is -1 without a descriptor, `used` is set by every use."""

    fd: int
    used: bool


class Descriptors:
    def __init__(self, open_max: int) -> None:
        self.open_max = open_max
        self._idle: dict[Holder, None] = {}
        self._kept: dict[Holder, None] = {}

    def __len__(self) -> int:
        return len(self._idle) + len(self._kept)

    @property
    def kept(self) -> list[Holder]:
        return list(self._kept)

    def add(self, holder: Holder) -> None:
        self._idle[holder] = None

    def keep(self, holder: Holder) -> None:
        if holder in self._idle:
            del self._idle[holder]
            self._kept[holder] = None

    def let_go(self, holder: Holder) -> None:
        """The holder may lose its descriptor from now on."""
        if holder in self._kept:
            del self._kept[holder]
            self._idle[holder] = None

    def close(self, holder: Holder) -> None:
        if holder.fd >= 0:
            os.close(holder.fd)
            holder.fd = -1
            self._idle.pop(holder, None)
            self._kept.pop(holder, None)

    def make_room(self) -> bool:
        """Close what is idle, longest unused first, until one more fits; False when too many are kept. A file that was
        used since the last time goes to the end of the line instead, once. All that are too many go: a burst of kept
        files would leave the pool at its size for ever."""
        second_chances = len(self._idle)
        while self._idle and len(self) >= self.open_max:
            holder = next(iter(self._idle))
            if holder.used and second_chances:
                second_chances -= 1
                holder.used = False
                del self._idle[holder]
                self._idle[holder] = None
            else:
                self.close(holder)
        return len(self) < self.open_max

    def close_all(self) -> None:
        for holder in (*self._idle, *self._kept):
            self.close(holder)
