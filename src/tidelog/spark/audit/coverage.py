"""Which offsets of which partitions are covered by what, and how often: intervals in any order, in bounded memory.

An interval becomes two boundaries, where it begins (+) and where it ends (-). Boundaries at one place are added up, and
those that cancel out vanish: a million batches that follow each other are two boundaries, and so are the rows of a
million records, in whatever order they come. Only what has gaps takes room (a marker between transactions, a cleaned
log), 24 bytes for a boundary; beyond `boundaries_max` of them sorted runs go to a temporary file and are merged later.
Nothing here knows what the kinds mean.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final, NamedTuple, Self

import numpy as np

SCOPE, LOG, HIDDEN, DELETED, OUTSIDE, LAKE = range(6)
"""LAKE is the first outlet; LAKE + n is the one after n others."""

OUTLETS_MAX: Final = 5
_BITS: Final = 2
"""For each kind but the outlets: no offset is covered twice by one of these."""
_MASK: Final = (1 << _BITS) - 1
_OUTLETS_AT: Final = _BITS * LAKE
_OUTLET_BITS: Final = 6
_OUTLET_MASK: Final = (1 << _OUTLET_BITS) - 1
_SUM_AT: Final = _OUTLETS_AT + _OUTLET_BITS * OUTLETS_MAX
"""All outlets together have the rest: how often an offset is there is exact, also where one outlet has more than 63
copies of it, which its own bits cannot tell."""
BOUNDARIES_MAX: Final = 1 << 21
CHUNK_MIN: Final = 512
"""Boundaries that are read from a run at once at least, however many runs there are."""
_EMPTY: Final = np.empty((0, 3), np.int64)


class Segments(NamedTuple):
    """Stretches of offsets (from start up to, not including, end) that are covered alike; bare ones are left out."""

    at: Any
    """The number of the partition among those that are audited."""
    start: Any
    end: Any
    packed: Any

    def has(self, kind: int) -> Any:
        return (self.packed >> (_BITS * kind)) & _MASK > 0

    @property
    def rows(self) -> Any:
        """How many rows each offset has, in all outlets."""
        return self.packed >> _SUM_AT

    def rows_in(self, outlet: int) -> Any:
        """In one of them."""
        return (self.packed >> (_OUTLETS_AT + _OUTLET_BITS * outlet)) & _OUTLET_MASK

    @property
    def landed(self) -> Any:
        """The same number where offsets have as many rows in each outlet."""
        return self.packed >> _OUTLETS_AT


@dataclass(slots=True)
class _Run:
    """Sorted boundaries: in the file from `position` on, or in memory."""

    left: int
    position: int = 0
    head: Any = None


class Coverage:
    """A context manager: the temporary file goes with it."""

    def __init__(
        self, *, boundaries_max: int = BOUNDARIES_MAX, chunk_min: int = CHUNK_MIN, directory: str | None = None
    ) -> None:
        self._boundaries_max = boundaries_max
        self._chunk_min = chunk_min
        self._directory = directory
        self._new: list[Any] = []
        self._new_count = 0
        self._settled = _EMPTY
        self._file: IO[bytes] | None = None
        self._runs: list[_Run] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def spilled_runs(self) -> int:
        return len(self._runs)

    def add(self, kind: int, at: int, starts: Any, ends: Any) -> None:
        """Intervals from starts up to, not including, ends."""
        count = len(starts)
        if not count:
            return
        assert kind < LAKE + OUTLETS_MAX
        one = 1 << (_BITS * kind) if kind < LAKE else (1 << _SUM_AT) + (1 << _OUTLETS_AT + _OUTLET_BITS * (kind - LAKE))
        rows = np.empty((2 * count, 3), np.int64)
        rows[:, 0] = at
        rows[:count, 1] = starts
        rows[count:, 1] = ends
        rows[:count, 2] = one
        rows[count:, 2] = -one
        self._new.append(rows)
        self._new_count += 2 * count
        if self._new_count + len(self._settled) >= self._boundaries_max:
            self._settle()
            # More than half is left: it does not cancel out, and sorting it again and again costs more than a file.
            if len(self._settled) > self._boundaries_max // 2:
                self._spill()

    def segments(self) -> Iterator[Segments]:
        """All segments in the order of partition and offset, in portions. Once."""
        self._settle()
        runs = [*self._runs, _Run(left=0, head=self._settled)]
        chunk = max(self._chunk_min, self._boundaries_max // len(runs))
        held = _EMPTY
        coverage = 0
        for merged in self._merged(runs, chunk):
            rows = np.concatenate([held, merged])
            total = np.cumsum(rows[:, 2]) + coverage
            held, coverage = rows[-1:].copy(), int(total[-2]) if len(total) > 1 else coverage
            keep = total[:-1] > 0
            if keep.any():
                yield Segments(rows[:-1, 0][keep], rows[:-1, 1][keep], rows[1:, 1][keep], total[:-1][keep])
        assert coverage + int(held[:, 2].sum()) == 0, "an interval has no end"

    # Sorting

    def _settle(self) -> None:
        self._settled = _added_up(np.concatenate([self._settled, *self._new]))
        self._new, self._new_count = [], 0

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - it lives as long as this object
        position = self._file.seek(0, 2)
        self._file.write(self._settled.tobytes())
        self._runs.append(_Run(left=len(self._settled), position=position))
        self._settled = _EMPTY

    def _merged(self, runs: list[_Run], chunk: int) -> Iterator[Any]:
        while runs:
            for run in runs:
                self._refill(run, chunk)
            runs = [run for run in runs if len(run.head)]
            # What lies behind the nearest end of a chunk may still be joined by what its run has in the file.
            open_ends = [(int(run.head[-1, 0]), int(run.head[-1, 1])) for run in runs if run.left]
            parts = []
            for run in runs:
                count = len(run.head) if not open_ends else _count_up_to(run.head, *min(open_ends))
                parts.append(run.head[:count])
                run.head = run.head[count:]
            if parts:
                merged = _added_up(np.concatenate(parts))
                if len(merged):
                    yield merged

    def _refill(self, run: _Run, chunk: int) -> None:
        if run.left and (run.head is None or not len(run.head)):
            assert self._file is not None
            count = min(chunk, run.left)
            self._file.seek(run.position)
            run.head = np.frombuffer(self._file.read(24 * count), np.int64).reshape(count, 3)
            run.position += 24 * count
            run.left -= count


def _added_up(rows: Any) -> Any:
    """Sorted by place, each place once, and none without an effect."""
    if not len(rows):
        return _EMPTY
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    is_first = np.empty(len(rows), bool)
    is_first[0] = True
    np.logical_or(rows[1:, 0] != rows[:-1, 0], rows[1:, 1] != rows[:-1, 1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    sums = np.add.reduceat(rows[:, 2], first)
    kept = rows[first]
    kept[:, 2] = sums
    return kept[sums != 0]


def _count_up_to(rows: Any, at: int, offset: int) -> int:
    return int(np.count_nonzero((rows[:, 0] < at) | ((rows[:, 0] == at) & (rows[:, 1] <= offset))))
