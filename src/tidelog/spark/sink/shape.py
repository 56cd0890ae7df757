"""What a row must look like: the columns of Spark's Kafka sink, by its rules and with its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.source.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class RowError(OptionError):
    """A row that cannot become a record."""


def check_columns(schema: StructType, topic: str | None, timestamp: str | None = None) -> tuple[str, ...]:
    """The names of the columns that count, as the frame has them; others are left alone. An OptionError names what is
    missing or has another type."""
    found = {field.name.lower(): field for field in schema.fields}
    if "value" not in found:
        raise OptionError(f"the column value is not found; the frame has {', '.join(schema.fieldNames())}")
    if topic is None and "topic" not in found:
        raise OptionError("where do rows go? Give the option topic, or a column topic")
    for name, allowed in _TYPES.items():
        if name in found and (given := found[name].dataType.simpleString()) not in allowed:
            raise OptionError(f"the column {name} is of type {given}; expected {' or '.join(allowed)}")
    if timestamp is not None:
        kind = found[timestamp.lower()].dataType.simpleString() if timestamp.lower() in found else "missing"
        if kind != "timestamp":
            raise OptionError(f"timestampColumn={timestamp}: the column is {kind}; expected one of type timestamp")
    return tuple(found[name].name for name in _TYPES if name in found)
