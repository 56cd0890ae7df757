"""Filters that Spark pushes down, as bounds: which partitions, offsets and times can match at all.

Spark applies every filter again, so bounds may be wide, but never too narrow.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from tidelog.spark.link import At
from tidelog.spark.source.splitting import Range

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_Values: TypeAlias = "Collection[Any] | None"


@dataclass(slots=True)
class Bounds:
    topics: _Values = None
    """None: any."""
    partitions: _Values = None
    offset_min: int = 0
    offset_max: int = 2**63 - 1
    time_min_ms: int | None = None
    """Records before the first one of this time can be left out: their times are earlier, whatever the order. There is
    no such bound from above, as a record that comes later may be older."""

    def take(self, filters: Iterable[Filter]) -> None:
        for one in filters:
            if len(getattr(one, "attribute", ())) == 1:
                self._take(one)

    def _take(self, one: Any) -> None:
        column: str = one.attribute[0]
        match one:
            case EqualTo() | EqualNullSafe():
                self._among(column, [one.value])
            case In():
                self._among(column, list(one.value))
            case GreaterThan() | GreaterThanOrEqual():
                self._at_least(column, one.value, isinstance(one, GreaterThan))
            case LessThan() | LessThanOrEqual():
                if column == "offset" and isinstance(one.value, int):
                    self.offset_max = min(self.offset_max, one.value - isinstance(one, LessThan))

    def _among(self, column: str, values: list[Any]) -> None:
        if column == "topic":
            self.topics = values if self.topics is None else [one for one in self.topics if one in values]
        elif column == "partition":
            self.partitions = values if self.partitions is None else [one for one in self.partitions if one in values]
        elif values and all(isinstance(one, int) for one in values) and column == "offset":
            self.offset_min = max(self.offset_min, min(values))
            self.offset_max = min(self.offset_max, max(values))
        elif values and None not in values and column == "timestamp":
            self._at_least(column, min(values), False)

    def _at_least(self, column: str, value: Any, is_open: bool) -> None:
        if column == "offset" and isinstance(value, int):
            self.offset_min = max(self.offset_min, value + is_open)
        elif column == "timestamp" and isinstance(value, datetime.datetime):
            # A session without a time zone hands out UTC without saying so; milliseconds are cut off, never rounded up.
            aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
            self.time_min_ms = max(self.time_min_ms or 0, (aware - _EPOCH) // _MILLISECOND)

    def may_have(self, at: At) -> bool:
        topic, partition = at
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def narrowed(self, ranges: Mapping[At, Range], first_of_time: Mapping[At, int | None]) -> dict[At, Range]:
        """`first_of_time`: by partition the first offset of time_min_ms or later, where that was asked."""
        found: dict[At, Range] = {}
        for at, (start, end) in ranges.items():
            if not self.may_have(at):
                continue
            low = first_of_time.get(at, start)
            low = end if low is None else max(start, low, self.offset_min)
            high = min(end, self.offset_max + 1)
            if low < high:
                found[at] = (low, high)
        return found
