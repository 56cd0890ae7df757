"""JSON values in the shape of their columns, and back.

The functions are made once for a schema and touch only what differs: where JSON text stands in for a type, and numbers.
Where nothing differs there is no function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidelog.spark.payload.errors import PayloadError
from tidelog.spark.payload.json_schema.shape import List, Map, Scalar, Shape, Struct, Text

Change = Callable[[Any], Any]


def to_texts(shape: Shape) -> Change | None:
    """What has no type of its own becomes JSON text."""
    return _changing(shape, lambda leaf: _text if isinstance(leaf, Text) else None)


def to_floats(shape: Shape) -> Change | None:
    """JSON has one kind of number: a whole one too large for a double to hold exactly is a number all the same."""
    return _changing(shape, lambda leaf: _float if leaf == Scalar("number") else None)


def to_json(shape: Shape) -> Change | None:
    """Rows back to JSON. A null that is not required is left out: most schemas do not allow it."""
    match shape:
        case Text():
            return _parsed
        case Scalar():
            return None
        case List(item):
            return _each(to_json(item))
        case Map(value):
            return _each_value(to_json(value))
        case Struct(fields, required):
            return _without_nulls([(name, to_json(inner), name in required) for name, inner in fields])


def _changing(shape: Shape, of: Callable[[Text | Scalar], Change | None]) -> Change | None:
    match shape:
        case Text() | Scalar():
            return of(shape)
        case List(item):
            return _each(_changing(item, of))
        case Map(value):
            return _each_value(_changing(value, of))
        case Struct(fields):
            changes = [(name, change) for name, inner in fields if (change := _changing(inner, of)) is not None]
            return _some_fields(changes) if changes else None


def _some_fields(changes: list[tuple[str, Change]]) -> Change:
    def change(value: Any) -> Any:
        if value is None:
            return None
        out = dict(value)
        for name, inner in changes:
            if name in out:
                out[name] = inner(out[name])
        return out

    return change


def _without_nulls(fields: list[tuple[str, Change | None, bool]]) -> Change:
    def change(value: Any) -> Any:
        if value is None:
            return None
        out = {}
        for name, inner, required in fields:
            item = value.get(name)
            if item is not None:
                out[name] = item if inner is None else inner(item)
            elif required and name in value:
                out[name] = None
        return out

    return change


def _each(inner: Change | None) -> Change | None:
    return None if inner is None else lambda items: None if items is None else [inner(item) for item in items]


def _each_value(inner: Change | None) -> Change | None:
    if inner is None:
        return None
    return lambda items: None if items is None else {key: inner(item) for key, item in items.items()}


def _text(value: Any) -> Any:
    return None if value is None else msgspec.json.encode(value).decode()


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value


def _parsed(text: Any) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise PayloadError("a column of JSON text does not hold JSON") from None
