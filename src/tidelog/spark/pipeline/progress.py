"""What Spark reports of a batch, in our words. Pure: a dictionary in, a value out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

NEWEST: Final = "tidelog_newest_"
"""Begins the names of observed metrics: the newest record timestamp (`ms`) in a batch, by the ingest flow it is of."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    batch: int  # the last one that is done; -1 is none
    at: str  # when the batch began, as Spark writes it
    rows: int
    input_rows_per_s: float
    processed_rows_per_s: float
    duration_ms: int
    lag_records: int | None = None
    newest_ms: int | None = None
    idle: bool = False  # a look at the log that found nothing new


def progress_of(report: Mapping[str, Any]) -> Progress:
    sources = report.get("sources") or []
    lags = [lag for source in sources if (lag := _lag(source)) is not None]
    duration = report.get("durationMs") or {}
    idle = bool(duration) and "addBatch" not in duration
    return Progress(
        batch=report["batchId"] - idle,  # an idle query names the batch to come
        at=report["timestamp"],
        rows=report.get("numInputRows") or 0,
        input_rows_per_s=_rate(report.get("inputRowsPerSecond")),
        processed_rows_per_s=_rate(report.get("processedRowsPerSecond")),
        duration_ms=duration.get("triggerExecution", 0),
        lag_records=sum(lags) if lags else None,
        newest_ms=_newest(report.get("observedMetrics") or {}),
        idle=idle,
    )


def _rate(value: Any) -> float:
    """Spark's first batch has no rate: NaN, or nothing."""
    return round(float(value), 3) if isinstance(value, int | float) and value == value else 0.0


def _newest(observed: Mapping[str, Any]) -> int | None:
    """Of a query over one ingest flow. Of a join, the age of neither side says how old the other one is."""
    rows = [row for name, row in observed.items() if name.startswith(NEWEST)]
    if len(rows) != 1:
        return None
    found = rows[0].get("ms") if isinstance(rows[0], Mapping) else rows[0][0]
    return None if found is None else int(found)


def _lag(source: Mapping[str, Any]) -> int | None:
    """Records between where the batch ended and the log's end; keys that begin with $ are no topics."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    if latest is None or end is None:
        return None
    return sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, Mapping):
        return None
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in value.items():
        if not topic.startswith("$") and isinstance(partitions, Mapping):
            found |= {(topic, number): end for number, end in partitions.items() if isinstance(end, int)}
    return found
