"""Records that an ingest flow with dead letters does not give to the flows that read it, as an outlet of those.

What cannot be decoded or breaks a rule is in the dead letters of the ingest flow itself; another flow that reads it
never sees it, and owes nothing of it. Which records these are is computed from the log by the same rules, a part of the
log at a time: when half of a topic is poison, its coordinates must not all be in the driver together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.origins import Origin
from tidelog.spark.pipeline.recomputing import Stretch, batch_plans, stretch_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidelog.spark.link import At

NAME: Final = "broken"
OFFSETS_AT_ONCE: Final = 1 << 20
"""Of the log, in all partitions: at most 30 MB of coordinates."""
_PLACE: Final = ["topic", "partition", "offset"]


class LeftOut:
    """`rows()` for `Outlet`."""

    def __init__(self, session: Callable[[], SparkSession], pipeline: Pipeline, origin: Origin) -> None:
        self._session = session
        self._pipeline = pipeline
        self._origin = origin

    def rows(self) -> Iterator[pa.RecordBatch]:
        ingest = self._origin.ingest
        stretch = stretch_of(self._pipeline, self._origin)
        spark = self._session().newSession()
        for part in parts_of(stretch, OFFSETS_AT_ONCE):
            plans = batch_plans(spark, self._pipeline, {ingest.name: part})
            every = plans.records(ingest, False).select(*_PLACE, "timestamp")
            given = plans.stream(ingest.name).select(*_PLACE)
            yield from every.join(given, _PLACE, "left_anti").toArrow().to_batches()


def parts_of(stretch: Stretch, offsets_max: int) -> Iterator[Stretch]:
    """Parts of so many offsets each, but for the last: of one partition after the other, few partitions or many."""
    starts: dict[At, int] = {}
    ends: dict[At, int] = {}
    room = offsets_max
    for at, end in sorted(stretch.ends.items()):
        start = stretch.starts[at]
        while start < end:
            starts[at], ends[at] = start, min(end, start + room)
            room -= ends[at] - start
            start = ends[at]
            if not room:
                yield replace(stretch, starts=starts, ends=ends)
                starts, ends, room = {}, {}, offsets_max
    if ends:
        yield replace(stretch, starts=starts, ends=ends)
