"""Rows to messages: the way back of `extracting`."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from tidelog.spark.payload.errors import PayloadError
from tidelog.spark.payload.protobuf.kinds import DURATION, JSON_TEXTS, TIMESTAMP, WRAPPERS, Field, Kind, Plain, Record


def fill(kind: Kind, message: Any, value: Any) -> None:
    if isinstance(kind, Record):
        for field in kind.fields:
            inner = value.get(field.name)
            if inner is not None:
                _set(field, message, inner)
        return
    name = message.DESCRIPTOR.full_name
    if name in (TIMESTAMP, DURATION):
        message.seconds, micros = divmod(value, 1_000_000)
        if name == DURATION and message.seconds < 0 and micros:
            # A Duration's two parts have the same sign.
            message.seconds += 1
            micros -= 1_000_000
        message.nanos = micros * 1000
    elif name in WRAPPERS:
        field = message.DESCRIPTOR.fields_by_name["value"]
        message.value = int(value) if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else value
    elif name in JSON_TEXTS:
        try:
            json_format.Parse(value, message)
        except json_format.ParseError:
            raise PayloadError(f"a column for {name} does not hold its JSON text") from None


def _set(field: Field, message: Any, value: Any) -> None:
    if field.shape == "one":
        if isinstance(field.kind, Plain):
            setattr(message, field.name, scalar(field.kind, value))
        elif not (isinstance(value, bool) and not value and not _is_wrapper(field)):
            inner = getattr(message, field.name)
            inner.SetInParent()
            fill(field.kind, inner, value)
        return
    target = getattr(message, field.name)
    if field.key is not None:
        for key, item in value.items():
            key = scalar(field.key, key)
            if isinstance(field.kind, Plain):
                target[key] = scalar(field.kind, _there(field, item))
            else:
                fill(field.kind, target[key], _there(field, item))
    elif isinstance(field.kind, Plain):
        target.extend([scalar(field.kind, _there(field, item)) for item in value])
    else:
        for item in value:
            fill(field.kind, target.add(), _there(field, item))


def scalar(kind: Plain, value: Any) -> Any:
    if kind.field.type == FieldDescriptor.TYPE_ENUM:
        known = kind.field.enum_type.values_by_name
        if value in known:
            return known[value].number
        try:
            return int(value)
        except ValueError:
            names = ", ".join(known)
            raise PayloadError(f"{kind.field.full_name} has no value {value!r}, it has {names}") from None
    if kind.field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return int(value)
    return value


def _there(field: Field, item: Any) -> Any:
    if item is None:
        raise PayloadError(f"{field.name} holds a null, which a Protobuf list or map cannot")
    return item


def _is_wrapper(field: Field) -> bool:
    return not isinstance(field.kind, Plain) and field.kind.message.full_name in WRAPPERS
