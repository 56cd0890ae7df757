"""What is in the table, or in any other outlet of a flow: coordinates of its rows, in whatever order they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from tidelog.spark.audit.coverage import LAKE, Coverage
from tidelog.spark.audit.errors import AuditError
from tidelog.spark.audit.ranges import Ranges, runs
from tidelog.spark.audit.windows import WindowCounts

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("topic", "partition", "offset", "timestamp")
TELL_ROWS: Final = 10_000_000
NO_TIME: Final = -(1 << 63)


class Table(Protocol):
    """The part of a lake table that the audit reads: topic, partition, offset and timestamp of each row. A timestamp
    may be null; rows of its partition are then not compared by windows."""

    def rows(self) -> Iterable[pa.RecordBatch]: ...


class Outlet(NamedTuple):
    """One of the places where a record of the log may end up. It must be in one of them, once."""

    name: str
    """Of its column in the report: lake, dead letters, duplicates, retrying."""
    table: Table


class Expected(Protocol):
    """A partition that is audited, as the log's side knows it."""

    @property
    def scope(self) -> Ranges: ...

    @property
    def gaps(self) -> Ranges | None:
        """What the cleaner took; None when it is too much to keep."""

    @property
    def offsets(self) -> Any:
        """With times: of all records, where rows are to be told from those of an earlier topic; else None."""

    @property
    def times(self) -> Any: ...


class LakeCounts:
    """What the rows came to, beside the coverage."""

    def __init__(self, count: int, window_ms: int) -> None:
        self.windows = [WindowCounts(window_ms) for _ in range(count)]
        self.earlier = [0] * count
        """Rows whose offset or time is not of a record in the log, where an earlier topic's may be there."""
        self.untimed = [0] * count
        """Rows without a time."""
        self.rows = 0
        self.other_topics = 0
        """Rows of topics, or of partitions, that are not audited."""


def read_lake(
    outlets: Sequence[Outlet],
    partitions: Mapping[tuple[str, int], tuple[int, Expected]],
    coverage: Coverage,
    window_ms: int,
    tell: Callable[[str], None] | None = None,
) -> LakeCounts:
    """Every row of the outlets: its offset into the coverage, under the number of its partition; into its window when
    the log has, or had to bring, a record for it. Partitions are given with their numbers."""
    counts = LakeCounts(len(partitions), window_ms)
    for number, outlet in enumerate(outlets):
        what = "reading the table" if len(outlets) == 1 else f"reading {outlet.name}"
        if tell is not None:
            tell(what)
        _read_one(outlet.table, LAKE + number, partitions, coverage, counts, what, tell)
    return counts


def _read_one(
    table: Table,
    kind: int,
    partitions: Mapping[tuple[str, int], tuple[int, Expected]],
    coverage: Coverage,
    counts: LakeCounts,
    what: str,
    tell: Callable[[str], None] | None,
) -> None:
    for batch in table.rows():
        if tell is not None and (counts.rows + batch.num_rows) // TELL_ROWS > counts.rows // TELL_ROWS:
            tell(f"{what}: {counts.rows + batch.num_rows} rows")
        counts.rows += batch.num_rows
        for place, offsets, times in by_partition(batch):
            found = partitions.get(place)
            if found is None:
                counts.other_topics += len(offsets)
                continue
            index, expected = found
            if expected.offsets is not None:
                is_ours = _matches(expected, offsets, times)
                counts.earlier[index] += len(offsets) - int(is_ours.sum())
                offsets, times = offsets[is_ours], times[is_ours]
            order = np.argsort(offsets, kind="stable")
            pieces = runs(offsets[order])
            coverage.add(kind, index, pieces.starts, pieces.ends)
            has_time = times != NO_TIME
            counts.untimed[index] += len(times) - int(has_time.sum())
            if expected.gaps is not None:
                judged = expected.scope.contains(offsets) & ~expected.gaps.contains(offsets)
                counts.windows[index].add(times[judged & has_time], None)


def _matches(expected: Expected, offsets: Any, times: Any) -> Any:
    """Whether each row has the offset and the time of a record in the log; of one without a time the offset decides."""
    if not len(expected.offsets):
        return np.zeros(len(offsets), bool)
    place = np.minimum(np.searchsorted(expected.offsets, offsets), len(expected.offsets) - 1)
    return (expected.offsets[place] == offsets) & ((expected.times[place] == times) | (times == NO_TIME))


def by_partition(batch: pa.RecordBatch) -> Iterable[tuple[tuple[str, int], Any, Any]]:
    """((topic, partition), offsets, times in ms) of each partition in a batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = [name for name in COLUMNS if name not in batch.schema.names]
    if missing:
        raise AuditError(f"the table has no column {missing[0]}; the audit needs {', '.join(COLUMNS)}")
    if not batch.num_rows:
        return
    columns = {name: batch.column(name) for name in COLUMNS}
    for name, column in columns.items():
        if column.null_count and name != "timestamp":
            raise AuditError(f"{column.null_count} rows of the table have no {name}: what they are cannot be told")
    encoded = columns["topic"]
    if not pa.types.is_dictionary(encoded.type):
        encoded = pc.dictionary_encode(encoded)
    names = encoded.dictionary.to_pylist()
    topics = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = columns["partition"].to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = columns["offset"].to_numpy(zero_copy_only=False).astype(np.int64)
    times = _milliseconds(columns["timestamp"])
    if (numbers < 0).any() or (numbers >= 1 << 31).any():
        raise AuditError("the table's column partition has numbers that no partition has")
    # One key for both.
    keys = (topics << 32) | numbers
    for key in np.unique(keys).tolist():
        chosen = keys == key
        if chosen.all():
            chosen = slice(None)
        yield (names[key >> 32], key & 0xFFFFFFFF), offsets[chosen], times[chosen]


def _milliseconds(column: Any) -> Any:
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        raise AuditError(f"the table's column timestamp is {column.type}; the audit needs a timestamp")
    per_ms = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    times = numbers * 1000 if column.type.unit == "s" else numbers // per_ms
    return np.where(column.is_null().to_numpy(zero_copy_only=False), NO_TIME, times) if column.null_count else times
