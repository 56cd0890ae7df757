"""Messages to Arrow, a column at a time: one pass over all messages per field, and no dictionary per message."""

from __future__ import annotations

from decimal import Decimal
from itertools import accumulate
from operator import attrgetter
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from tidelog.spark.payload.protobuf.kinds import DURATION, TIMESTAMP, WRAPPERS, Field, Kind, Plain, Record


def extract(kind: Kind, values: list[Any]) -> pa.Array:
    """One entry per value; None is null."""
    match kind:
        case Plain():
            return pa.array(_plain(kind, values), type=kind.type)
        case Record():
            return _struct(kind, values)
        case _:
            return pa.array(_special(kind.message.full_name, values), type=kind.type)


def _struct(kind: Record, messages: list[Any]) -> pa.Array:
    columns = [_column(field, messages) for field in kind.fields]
    mask = pa.array([message is None for message in messages], type=pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind.type), mask=mask)


def _column(field: Field, messages: list[Any]) -> pa.Array:
    get, name = attrgetter(field.name), field.name
    if field.shape == "one":
        if field.presence:
            return extract(field.kind, [get(m) if m is not None and m.HasField(name) else None for m in messages])
        return extract(field.kind, [None if m is None else get(m) for m in messages])
    lists = [() if m is None else get(m) for m in messages]
    offsets = pa.array([0, *accumulate(map(len, lists))], type=pa.int32())
    if field.key is None:
        items = extract(field.kind, [item for items in lists for item in items])
        return pa.ListArray.from_arrays(offsets, items, type=field.type)
    keys = extract(field.key, [key for entries in lists for key in entries])
    values = extract(field.kind, [entries[key] for entries in lists for key in entries])
    return pa.MapArray.from_arrays(offsets, keys, values, type=field.type)


def _plain(kind: Plain, values: list[Any]) -> list[Any]:
    if kind.field.type == FieldDescriptor.TYPE_ENUM:
        names = {value.number: value.name for value in reversed(kind.field.enum_type.values)}
        # An open enum keeps numbers that this schema does not know yet.
        return [None if value is None else names.get(value) or str(value) for value in values]
    if pa.types.is_decimal(kind.type):
        return [None if value is None else Decimal(value) for value in values]
    return values


def _special(name: str, messages: list[Any]) -> list[Any]:
    if name in (TIMESTAMP, DURATION):
        # Towards the past, as Protobuf counts: nanos are never negative in a Timestamp.
        return [None if m is None else m.seconds * 1_000_000 + m.nanos // 1000 for m in messages]
    if name in WRAPPERS:
        as_decimal = name == "google.protobuf.UInt64Value"
        return [None if m is None else Decimal(m.value) if as_decimal else m.value for m in messages]
    if name.startswith("google.protobuf.") and messages and name.endswith(("Struct", "Value", "ListValue")):
        return [None if m is None else json_format.MessageToJson(m, indent=None) for m in messages]
    return [None if m is None else True for m in messages]
