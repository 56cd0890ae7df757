"""Sets of offsets as sorted, disjoint ranges in numpy: never a Python number for a record."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Ranges(NamedTuple):
    """Offsets from each start up to, not including, its end."""

    starts: Any
    ends: Any

    @property
    def offsets(self) -> int:
        """How many there are."""
        return int((self.ends - self.starts).sum())

    def contains(self, offsets: Any) -> Any:
        """For each offset whether it is in a range."""
        if not len(self.starts):
            return np.zeros(len(offsets), bool)
        before = np.searchsorted(self.starts, offsets, side="right") - 1
        return (before >= 0) & (offsets < self.ends[np.maximum(before, 0)])

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))


def ranges(*pairs: tuple[int, int]) -> Ranges:
    """Of (start, end); those without an offset are left out."""
    kept = np.array([pair for pair in pairs if pair[0] < pair[1]], np.int64).reshape(-1, 2)
    return Ranges(kept[:, 0], kept[:, 1])


def runs(offsets: Any) -> Ranges:
    """Of sorted offsets. One that comes n times is in n ranges, which then overlap."""
    if not len(offsets):
        return ranges()
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    return Ranges(
        np.concatenate([offsets[:1], offsets[breaks + 1]]), np.concatenate([offsets[breaks], offsets[-1:]]) + 1
    )


def joined(starts: Any, ends: Any) -> Ranges:
    """Ranges in ascending order, with those that touch each other as one."""
    if not len(starts):
        return ranges()
    breaks = np.flatnonzero(starts[1:] != ends[:-1])
    return Ranges(np.concatenate([starts[:1], starts[breaks + 1]]), np.concatenate([ends[breaks], ends[-1:]]))
