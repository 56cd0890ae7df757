"""Records that an ingest flow with dead letters does not give to the flows that read it, as an outlet of those.

What cannot be decoded or breaks a rule is in the dead letters of the ingest flow itself; another flow that reads it
never sees it, and owes nothing of it. Which records these are is computed from the log by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.origins import Origin
from tidelog.spark.pipeline.recomputing import batch_plans, stretch_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NAME: Final = "broken"
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
        plans = batch_plans(self._session().newSession(), self._pipeline, {ingest.name: stretch})
        every = plans.records(ingest, False).select(*_PLACE, "timestamp")
        given = plans.stream(ingest.name).select(*_PLACE)
        yield from every.join(given, _PLACE, "left_anti").toArrow().to_batches()
