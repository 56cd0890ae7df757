"""Small things that flows with a state do to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


FEW_ROWS: Final = 100_000
"""Of a batch, some megabytes of keys: they go to every task that reads what was kept before."""


def asked_for(kept: DataFrame, rows: DataFrame, key: str, is_few: bool) -> DataFrame:
    """Of what was kept, all that has a key of these rows, so that the rest stays where it lies. Of many rows the keys
    are not sent around: it is all that was kept then."""
    from pyspark.sql import functions as F

    return kept.join(F.broadcast(rows.select(key).distinct()), key, "left_semi") if is_few else kept


def dated(rows: DataFrame, columns: list[str], time: str = "_time") -> DataFrame:
    """The columns, and event_date where they lack it: of the event time, or 1970 where there is none."""
    from pyspark.sql import functions as F

    if "event_date" in columns:
        return rows.select(*columns)
    day = F.coalesce(F.to_date(time), F.lit("1970-01-01").cast("date"))
    return rows.select(*columns, day.alias("event_date"))


def tie_break(rows: DataFrame) -> Column:
    """An order among rows of one record (a query may have made several of it) that is the same whenever they are read
    again, however they are split over tasks."""
    from pyspark.sql import functions as F

    fields = [(field.name, field.dataType) for field in rows.schema.fields]
    # Spark has no hash of maps.
    return F.xxhash64(
        *(F.to_json(F.struct(F.col(f"`{name}`"))) if _has_map(kind) else F.col(f"`{name}`") for name, kind in fields)
    )


def _has_map(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case MapType():
            return True
        case ArrayType():
            return _has_map(kind.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in kind.fields)
        case _:
            return False
