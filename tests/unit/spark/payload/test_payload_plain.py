"""Columns as rows of plain Python, against Arrow's own slow way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.payload.plain import rows

KIND = pa.struct(
    [
        ("n", pa.int64()),
        ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("l", pa.list_(pa.struct([("x", pa.string()), ("e", pa.struct([]))]))),
    ]
)
inner = st.none() | st.fixed_dictionaries({"x": st.none() | st.text(max_size=2), "e": st.none() | st.just({})})
maps = st.dictionaries(st.text(max_size=2), st.none() | st.lists(st.none() | st.integers(0, 3), max_size=2), max_size=2)
values = st.none() | st.fixed_dictionaries(
    {"n": st.none() | st.integers(-9, 9), "m": st.none() | maps, "l": st.none() | st.lists(inner, max_size=2)}
)


@settings(max_examples=80)
@given(st.lists(values, max_size=5), st.integers(0, 5), st.integers(0, 5))
def test_rows_are_those_of_arrow_in_slices_too(given: list[Any], start: int, length: int) -> None:
    column = pa.array(given, KIND).slice(start, length)
    assert rows(column) == column.to_pylist(maps_as_pydicts="strict")


def test_times_are_numbers() -> None:
    kind = pa.struct([("t", pa.timestamp("us", "UTC")), ("d", pa.date32()), ("i", pa.list_(pa.duration("us")))])
    given = [{"t": 5, "d": 6, "i": [7, None]}, None]
    assert rows(pa.array(given, kind)) == given
