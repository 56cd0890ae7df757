"""A view as it was at an earlier time, from the history of its changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidelog.kernel.errors import TidelogError
from tidelog.spark.pipeline.kinds.view import View
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.sinks import table_of
from tidelog.spark.pipeline.views.changes import TIME
from tidelog.spark.pipeline.views.steps import view_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AsOfError(TidelogError):
    """A question that no history can answer."""


def as_of(spark: SparkSession, pipeline: Pipeline, flow: str, time: datetime) -> DataFrame:
    """The rows of the view `flow` by the changes whose time (`changed_at`: the flow's `time`, by default the record's
    timestamp) is not after `time`, in the order of the log. The same columns as the table's, but for the bucket."""
    from pyspark.sql import functions as F

    from tidelog.spark.lake.frames import frame_of

    view = pipeline.flows.get(flow)
    if not isinstance(view, View):
        raise AsOfError(f"{flow!r} is no view of the pipeline {pipeline.name!r}")
    if view.changes is None:
        raise AsOfError(f"{flow!r} keeps no history: give it history: true, and start it anew")
    if time.tzinfo is None:
        raise AsOfError(f"{time} has no time zone: give a datetime with one, such as tzinfo=UTC")
    changes = frame_of(spark, table_of(view.changes).snapshot())
    if changes is None:
        raise AsOfError(f"{flow!r} has not seen a change yet")
    until_us = (time - _EPOCH) // timedelta(microseconds=1)
    return view_of(view, changes.where(F.unix_micros(TIME) <= until_us).drop("event_date"))
