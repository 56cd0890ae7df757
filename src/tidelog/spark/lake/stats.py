"""Bounds of a file's columns, from the file's own footer, for logs that let readers skip files (Delta).

Only where they are exact and short: whole numbers, dates, times, short texts. A reader must not skip a file because of
a bound that was cut.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from tidelog.spark.lake.files import ColumnStats

_TEXT_MAX: Final = 64


def column_stats(metadata: Any, schema: pa.Schema) -> dict[str, ColumnStats]:
    positions = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    stats = {}
    for field in schema:
        if _has_bounds(field.type) and (found := _of_column(metadata, positions[field.name])) is not None:
            stats[field.name] = found
    return stats


def _has_bounds(kind: Any) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_string(kind)
    )


def _of_column(metadata: Any, index: int) -> ColumnStats | None:
    low = high = None
    nulls = 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(index)
        found = chunk.statistics
        if found is None or not found.has_null_count:
            return None
        nulls += found.null_count
        if not found.has_min_max:
            if found.null_count < chunk.num_values:
                return None
            continue
        low = found.min if low is None else min(low, found.min)
        high = found.max if high is None else max(high, found.max)
    if isinstance(low, str) and max(len(low), len(high or "")) > _TEXT_MAX:
        return ColumnStats(nulls=nulls)
    return ColumnStats(low=_told(low), high=_told(high), nulls=nulls)


def _told(value: Any) -> int | str | None:
    if value is None or isinstance(value, int | str):
        return value
    text: str = value.isoformat()
    return text.replace("+00:00", "Z")
