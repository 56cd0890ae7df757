"""Arrow columns as rows of plain Python: dictionaries, lists, numbers; no datetime.

Arrow's own `to_pylist` makes an object per value of a nested column, which takes ten times as long as a row of this.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa


def rows(column: pa.Array) -> list[Any]:
    """Timestamps, dates and intervals as the numbers they are; decimals as Decimal; maps as dictionaries."""
    kind = _plain_type(column.type)
    return _rows(column if kind == column.type else column.cast(kind))


def _rows(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [_rows(part) for part in column.flatten()]
        found: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
        if not names:
            found = [{} for _ in range(len(column))]
    elif pa.types.is_map(kind):
        keys, items = _rows(column.keys), _rows(column.items)
        found = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in _bounds(column)]
    elif pa.types.is_list(kind):
        values = _rows(column.values)
        found = [values[a:b] for a, b in _bounds(column)]
    else:
        return list(column.to_pylist())
    if column.null_count:
        found = [row if there else None for row, there in zip(found, column.is_valid().to_pylist(), strict=True)]
    return found


def _bounds(column: pa.Array) -> list[tuple[int, int]]:
    return list(pairwise(column.offsets.to_pylist()))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_plain_type(kind.item_type)))
    return kind
