"""The reader of `spark.read`: resolves where to start and end once, narrows that by filters, splits it into tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tidelog.spark.link import Link
from tidelog.spark.source.filters import Bounds
from tidelog.spark.source.options import SourceOptions
from tidelog.spark.source.splitting import Range
from tidelog.spark.source.tasks import pieces, read_piece
from tidelog.spark.source.view import View

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.link import At

_LOG: Final = logging.getLogger(__name__)


class PushFilters:
    """The reader's pushFilters. A reader that defines the method fails every query of a session that does not allow
    push-down (the default); Spark tells by the method's function, so this has the one of the base class."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """All are returned: Spark applies them again."""
        self._bounds.take(filters)
        return filters


class BatchReader(DataSourceReader):  # type: ignore[misc]  # pyspark has no types here
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._starting = options.starting_for("batch")
        self._bounds = Bounds()
        if options.filter_pushdown:
            # Not by default: Spark 4.3 keeps one plan per loaded frame. After where(...).count() a plain count() of the
            # same frame would still miss what the filter left out, and two sides of a union would get one side's rows.
            self.pushFilters = PushFilters(self._bounds)
        if options.stream_only:
            _LOG.warning("a batch query takes no notice of %s", ", ".join(options.stream_only))

    def partitions(self) -> list[InputPartition]:
        with Link(self._options.kafka) as link:
            view = View(link, self._options)
            every = view.partitions()
            latest = view.latest(every)
            starts = view.starts(self._starting, every, latest)
            ends = view.ends(self._options.ending, every, latest)
            wanted = self._narrowed(link, {at: (starts[at], ends[at]) for at in every})
            return list(pieces(wanted, view.ids(wanted), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(partition)

    def _narrowed(self, link: Link, ranges: dict[At, Range]) -> dict[At, Range]:
        bounds = self._bounds
        first: dict[At, int | None] = {}
        if bounds.time_min_ms is not None:
            asked = {at: bounds.time_min_ms for at in ranges if bounds.may_have(at)}
            first = link.at_times(asked) if asked else {}
        return bounds.narrowed(ranges, first)
