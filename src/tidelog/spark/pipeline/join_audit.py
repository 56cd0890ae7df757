"""Where the records of a join's side have ended up, for `check`: each is joined, unmatched, late, or still waiting.

Each side is told by itself. Both may read one topic, and then a record is a row of either: joined as the left one,
say, and unmatched as the right one. Its coordinates are the same in both, so only the side tells them apart.

A record may be in several pairs; it counts once. Waiting are the rows of the state that have found no partner: it is
looked at first and told last, without what the tables have by then. So a row that found its partner in between, or in
a batch that died before its manifest, is not taken for two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tidelog.spark.audit.ranges import Ranges, joined, ranges, runs
from tidelog.spark.pipeline.batch_state import Manifest, kept_home, query_of, read_manifest
from tidelog.spark.pipeline.join_batch import ROWS
from tidelog.spark.pipeline.join_rows import MS, PLACE, SIDE, effective
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.kinds.join import SIDES, Interval, Join, Side
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.sinks import table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.audit import Outlet

LOOKS: Final = 5  # a flow that runs removes folders that no manifest names any more


def outlets_of(flow: Join, pipeline: Pipeline, side: Side) -> Sequence[Outlet]:
    """None where rows cannot be told by records: a query may drop or multiply them."""
    from tidelog.spark.audit import Outlet

    if not all(isinstance(pipeline.flows[name], Ingest) for name in flow.inputs):
        return []
    if flow.interval is None:
        table = table_of(flow.table)
        return [Outlet("lake", _Rows(lambda: Seen().each(table.rows(f"{side}_"))))]
    told = JoinRecords(flow, flow.interval, side, pipeline.work)
    return [
        Outlet("joined", _Rows(told.joined)),
        Outlet("unmatched", _Rows(told.unmatched)),
        Outlet("late", _Rows(told.late)),
        Outlet("waiting", _Rows(told.waiting)),
    ]


class _Rows:
    def __init__(self, rows: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        self.rows = rows


class Seen:
    """Which records were met, as ranges of offsets."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], Ranges] = {}

    def each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of records that are met for the first time."""
        import pyarrow as pa

        for batch in batches:
            kept = [index for place, rows in _by_place(batch) for index in self._new(batch, place, rows)]
            yield batch.take(pa.array(sorted(kept), pa.int64()))

    def _new(self, batch: pa.RecordBatch, place: tuple[str, int], rows: Any) -> Any:
        offsets, first = np.unique(_numbers(batch, "offset")[rows], return_index=True)
        known = self._offsets.get(place, ranges())
        is_new = ~known.contains(offsets)
        fresh = runs(offsets[is_new])
        starts, ends = np.concatenate([known.starts, fresh.starts]), np.concatenate([known.ends, fresh.ends])
        order = np.argsort(starts)
        self._offsets[place] = joined(starts[order], ends[order])
        return rows[first[is_new]].tolist()


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], Any]]:
    """((topic, partition), indexes of its rows)."""
    encoded = batch.column("topic").dictionary_encode()
    names = encoded.dictionary.to_pylist()
    topics = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    places = (topics << 32) | _numbers(batch, "partition")
    for place in np.unique(places).tolist():
        yield (names[place >> 32], place & 0xFFFFFFFF), np.flatnonzero(places == place)


def _numbers(batch: pa.RecordBatch, column: str) -> Any:
    return batch.column(column).to_numpy(zero_copy_only=False).astype(np.int64)


class JoinRecords:
    """One look at all outlets of a side, in the order in which the audit asks for them."""

    def __init__(self, flow: Join, interval: Interval, side: Side, work: Path) -> None:
        self._flow = flow
        self._interval = interval
        self._side: Side = side
        self._work = work
        self._seen = Seen()
        self._state: list[pa.RecordBatch] = []

    def joined(self) -> Iterator[pa.RecordBatch]:
        self._state = self._waiting_now()
        self._seen = Seen()
        yield from self._seen.each(table_of(self._flow.table).rows(f"{self._side}_"))

    def unmatched(self) -> Iterator[pa.RecordBatch]:
        return self._noted(table_of(self._flow.unmatched).rows(only=(SIDE, self._side)))

    def late(self) -> Iterator[pa.RecordBatch]:
        return self._noted(table_of(self._flow.late).rows(only=(SIDE, self._side)))

    def waiting(self) -> Iterator[pa.RecordBatch]:
        return self._seen.each(self._state)

    def _noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows: one that is there twice, or in another outlet too, is for the audit to name."""
        for batch in batches:
            for _ in self._seen.each([batch]):
                yield batch

    def _waiting_now(self) -> list[pa.RecordBatch]:
        query = query_of(self._work / "checkpoints" / self._flow.name)
        home = kept_home(self._work, self._flow.name) / str(query)
        for look in range(LOOKS):
            try:
                manifest = None if query is None else read_manifest(home)
                return [] if manifest is None else self._waiting_in(home, manifest)
            except FileNotFoundError:
                if look == LOOKS - 1:
                    raise
        return []

    def _waiting_in(self, home: Path, manifest: Manifest) -> list[pa.RecordBatch]:
        """Of this side. Those that have found a partner are among them: they are in the table."""
        return [self._not_over(batch, manifest) for batch in _read(home, manifest, ROWS, (*PLACE, SIDE, MS))]

    def _not_over(self, batch: pa.RecordBatch, manifest: Manifest) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        ours = batch.filter(pc.equal(batch.column(SIDE), self._side))
        (other,) = (side for side in SIDES if side != self._side)
        until_ms = _numbers(ours, MS) + self._interval.reach_ms(self._side)
        # Without a watermark of the other side nothing is over.
        ends_ms = effective(self._interval, manifest.sides_ms).get(other, until_ms)
        return ours.filter(pa.array(until_ms >= ends_ms)).select(list(PLACE))


def _read(home: Path, manifest: Manifest, part: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    for folder in manifest.folders(part):
        for file in sorted((home / folder.name).iterdir()):
            if file.suffix == ".parquet" and not file.name.startswith((".", "_")):
                with pq.ParquetFile(file) as source:
                    yield from source.iter_batches(columns=list(columns))
