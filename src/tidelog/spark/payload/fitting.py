"""A column's type against the type a schema gives: what may be written, and as what."""

from __future__ import annotations

import pyarrow as pa

from tidelog.spark.payload.errors import PayloadError, reason


def fit(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column in the schema's types. Fields it lacks stay away, so that the schema's defaults take their place."""
    kind = _fitted(column.type, wanted, "value")
    if kind == column.type:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unfit:
        raise PayloadError(f"the column does not fit the schema: {reason(unfit)}") from None


def _fitted(have: pa.DataType, wanted: pa.DataType, path: str) -> pa.DataType:
    if pa.types.is_struct(wanted) and pa.types.is_struct(have):
        fields = []
        for field in have:
            index = wanted.get_field_index(field.name)
            if index < 0:
                names = ", ".join(known.name for known in wanted)
                raise PayloadError(f"the schema has no field {path}.{field.name}, it has {names}")
            fields.append(field.with_type(_fitted(field.type, wanted[index].type, f"{path}.{field.name}")))
        return pa.struct(fields)
    if pa.types.is_list(wanted) and (pa.types.is_list(have) or pa.types.is_large_list(have)):
        return pa.list_(have.value_field.with_type(_fitted(have.value_type, wanted.value_type, f"{path}[]")))
    if pa.types.is_map(wanted) and pa.types.is_map(have):
        return pa.map_(
            have.key_field, have.item_field.with_type(_fitted(have.item_type, wanted.item_type, f"{path}{{}}"))
        )
    if pa.types.is_nested(wanted) or pa.types.is_nested(have):
        raise PayloadError(f"{path} is {have} in the column and {wanted} in the schema")
    if pa.types.is_null(have) or have == wanted:
        return have
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    texts = (pa.types.is_string, pa.types.is_large_string)
    blobs = (pa.types.is_binary, pa.types.is_large_binary)
    times = (pa.types.is_timestamp,)
    for family in (numbers, texts, blobs, times):
        if any(test(have) for test in family) and any(test(wanted) for test in family):
            return wanted
    raise PayloadError(f"{path} is {have} in the column and {wanted} in the schema")
