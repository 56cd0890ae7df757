"""Columns: which types a table takes, and what may change from one batch to the next.

Pure. Every column is nullable in the table, whatever the frame says: a later batch may lack it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelog.spark.lake.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

UTC_MICROS: Final = pa.timestamp("us", tz="UTC")

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC_MICROS,
}
_ALLOWED: Final = (*_PLAIN, "decimal", "array", "map", "struct")
PARTITION_TYPES: Final = {
    pa.date32(): "date",
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
}
# Delta refuses these in a name, Iceberg reads a dot as "inside of".
_BAD_CHARACTERS: Final = frozenset(" ,;{}()\n\t=.")
_WIDER: Final = {
    (pa.int8(), pa.int16()),
    (pa.int8(), pa.int32()),
    (pa.int8(), pa.int64()),
    (pa.int16(), pa.int32()),
    (pa.int16(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
}


def from_spark(schema: StructType) -> pa.Schema:
    """The Arrow schema of a frame, or SchemaError naming the first column that no table could keep."""
    fields = [pa.field(field.name, _arrow_type(field.name, field.dataType)) for field in schema.fields]
    seen: dict[str, str] = {}
    for name in (field.name for field in fields):
        if not name or _BAD_CHARACTERS & set(name):
            raise SchemaError(f"column {name!r}: a name in a table has none of space , ; {{ }} ( ) = . tab newline")
        if (other := seen.setdefault(name.lower(), name)) is not name:
            raise SchemaError(f"columns {other!r} and {name!r} have the same name (upper and lower case count as one)")
    return pa.schema(fields)


def check_partitioning(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if name.startswith("_"):
            raise SchemaError(f"the partition column {name!r} may not begin with _: readers skip such directories")
        if name not in schema.names:
            raise SchemaError(f"the partition column {name!r} is not in the frame, which has {', '.join(schema.names)}")
        if schema.field(name).type not in PARTITION_TYPES:
            allowed = ", ".join(PARTITION_TYPES.values())
            raise SchemaError(f"the partition column {name!r} is {schema.field(name).type}; allowed are {allowed}")
    if set(schema.names) == set(partition_by):
        raise SchemaError(
            f"the frame has only partition columns ({', '.join(partition_by)}); a file needs at least one other"
        )


def reconcile(table: pa.Schema, frame: pa.Schema) -> pa.Schema:
    """The table's columns after a batch of the frame: its own, in their order, then the new ones. So in structs."""
    return pa.schema(_joined(list(table), list(frame), ""))


def _joined(table: list[pa.Field], frame: list[pa.Field], inside: str) -> list[pa.Field]:
    joined = {field.name: field for field in table}
    known = {name.lower(): name for name in joined}
    for field in frame:
        path = f"{inside}{field.name}"
        name = known.setdefault(field.name.lower(), field.name)
        if name != field.name:
            raise SchemaError(f"column {path!r} is called {inside + name!r} in the table")
        if name in joined:
            joined[name] = pa.field(name, _joined_type(joined[name].type, field.type, path))
        else:
            joined[name] = field
    return list(joined.values())


def _joined_type(table: Any, frame: Any, path: str) -> pa.DataType:
    """The table's type, with what the frame adds inside of it."""
    if pa.types.is_struct(table) and pa.types.is_struct(frame):
        return pa.struct(_joined(list(_children(table)), list(_children(frame)), f"{path}."))
    if pa.types.is_list(table) and pa.types.is_list(frame):
        return pa.list_(_joined_type(table.value_type, frame.value_type, f"{path}[]"))
    if pa.types.is_map(table) and pa.types.is_map(frame) and table.key_type == frame.key_type:
        return pa.map_(table.key_type, _joined_type(table.item_type, frame.item_type, f"{path}[]"))
    if frame != table and (frame, table) not in _WIDER:
        raise SchemaError(
            f"column {path!r} is {table} in the table and {frame} in the frame; "
            "new columns are taken, changed ones are not"
        )
    return table


def normal(schema: pa.Schema) -> pa.Schema:
    """As from_spark would have made it: libraries differ in large types, nullability and metadata."""
    return pa.schema([pa.field(field.name, _normal_type(field.type)) for field in schema])


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the schema's columns; those that it lacks are null."""
    present = set(batch.schema.names)
    columns = []
    for field in schema:
        if field.name in present:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _arrow_type(column: str, kind: DataType) -> pa.DataType:
    from pyspark.sql import types

    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, types.ArrayType):
        return pa.list_(_arrow_type(column, kind.elementType))
    if isinstance(kind, types.MapType):
        return pa.map_(_arrow_type(column, kind.keyType), _arrow_type(column, kind.valueType))
    if isinstance(kind, types.StructType):
        return pa.struct(
            [pa.field(field.name, _arrow_type(f"{column}.{field.name}", field.dataType)) for field in kind]
        )
    try:
        return _PLAIN[kind.simpleString()]
    except KeyError:
        raise SchemaError(
            f"column {column!r} is {kind.simpleString()}, which no table keeps; allowed are {', '.join(_ALLOWED)}"
        ) from None


def _normal_type(kind: Any) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return UTC_MICROS if kind.tz else pa.timestamp("us")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_normal_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_normal_type(kind.key_type), _normal_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _normal_type(field.type)) for field in _children(kind)])
    return kind


def _children(kind: Any) -> Iterator[pa.Field]:
    return (kind.field(index) for index in range(kind.num_fields))
