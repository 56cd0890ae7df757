"""The compiled reader against fastavro, over schemas of any shape and their changes; what a lenient reader takes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.payload.avro.reading import AvroReader
from tidelog.spark.payload.errors import PayloadError, SchemaError
from tidelog.spark.payload.schema import Schema

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}
WIDER = {"int": ["long", "double"], "long": ["double"], "float": ["double"], "bytes": ["bytes"], "string": ["bytes"]}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """Any shape but unions of several types, which fastavro and columns show differently."""
    kinds = ["boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed"]
    if depth:
        kinds += ["record", "record", "array", "map", "optional"]
    kind = draw(st.sampled_from(kinds))
    if kind == "enum":
        return {"type": "enum", "name": "?", "symbols": ["A", "B", "C"]}
    if kind == "fixed":
        return {"type": "fixed", "name": "?", "size": draw(st.integers(1, 5))}
    if kind == "array":
        return {"type": "array", "items": draw(schemas(depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(schemas(depth - 1))}
    if kind == "optional":
        inner = draw(schemas(depth - 1).filter(lambda inner: not isinstance(inner, list)))
        return draw(st.permutations(["null", inner]))
    if kind == "record":
        inner = draw(st.lists(schemas(depth - 1), min_size=1, max_size=4))
        return {"type": "record", "name": "?", "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(inner)]}
    return kind


def named(schema: Any, count: Iterator[int]) -> Any:
    """No two types of one name."""
    if isinstance(schema, list):
        return [named(branch, count) for branch in schema]
    if isinstance(schema, str):
        return schema
    out = {**schema, **({"name": f"N{next(count)}"} if "name" in schema else {})}
    for key in ("items", "values"):
        if key in schema:
            out[key] = named(schema[key], count)
    if "fields" in schema:
        out["fields"] = [{**field, "type": named(field["type"], count)} for field in schema["fields"]]
    return out


anything = schemas().map(lambda schema: named(schema, itertools.count()))


def value_of(draw: st.DrawFn, schema: Any) -> Any:
    if isinstance(schema, list):
        return value_of(draw, draw(st.sampled_from(schema)))
    if isinstance(schema, str):
        return draw(VALUES[schema])
    match schema["type"]:
        case "enum":
            return draw(st.sampled_from(schema["symbols"]))
        case "fixed":
            return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
        case "array":
            return [value_of(draw, schema["items"]) for _ in range(draw(st.integers(0, 3)))]
        case "map":
            return {str(n): value_of(draw, schema["values"]) for n in range(draw(st.integers(0, 3)))}
        case _:
            return {field["name"]: value_of(draw, field["type"]) for field in schema["fields"]}


def changed(draw: st.DrawFn, schema: Any, within_union: bool = False) -> Any:
    """A reader's schema for what `schema` wrote: fields dropped, moved, added, numbers widened, types made optional."""
    if isinstance(schema, list):
        return [branch if branch == "null" else changed(draw, branch, True) for branch in schema]
    if isinstance(schema, str):
        wider = draw(st.sampled_from([schema, *WIDER.get(schema, [])]))
        return wider if within_union else draw(st.sampled_from([wider, ["null", wider]]))
    out = dict(schema)
    if "fields" in schema:
        kept = [{**f, "type": changed(draw, f["type"])} for f in schema["fields"] if draw(st.booleans())]
        added = {"name": "added", "type": "string", "default": "new"}
        out["fields"] = draw(st.permutations([*kept, added]))
    for key in ("items", "values"):
        if key in schema:
            out[key] = changed(draw, schema[key])
    return out


def encoded(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def parse(writer: Any, reader: Any, body: bytes) -> Any:
    return AvroReader(Schema("avro", json.dumps(reader))).parser(Schema("avro", json.dumps(writer)))(body)


@settings(max_examples=80)
@given(st.data())
def test_any_schema_is_read_as_fastavro_reads_it(data: st.DataObject) -> None:
    schema = data.draw(anything)
    body = encoded(schema, value_of(data.draw, schema))
    expected = fastavro.schemaless_reader(BytesIO(body), fastavro.parse_schema(schema), None)
    assert parse(schema, schema, body) == expected


@settings(max_examples=80)
@given(st.data())
def test_any_change_is_resolved_as_fastavro_resolves_it(data: st.DataObject) -> None:
    writer = data.draw(anything)
    reader = changed(data.draw, writer)
    body = encoded(writer, value_of(data.draw, writer))
    expected = fastavro.schemaless_reader(BytesIO(body), fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    assert parse(writer, reader, body) == expected


@settings(max_examples=80)
@given(st.data(), st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(data: st.DataObject, body: bytes) -> None:
    schema = data.draw(anything)
    try:
        parse(schema, schema, body)
    except PayloadError:
        return


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("schema", "body", "why"),
    [
        (["null", "string"], b"\x01", "a union of 2 has no branch -1"),
        (["null", "string"], b"\x04", "a union of 2 has no branch 2"),
        (ENUM, b"\x01", "an enum has no symbol -1"),
        (ENUM, b"\x04", "an enum has no symbol 2"),
        ("boolean", b"\x02", "a boolean is 2"),
        ("string", b"\x01", "ends too early"),
        ("string", b"\x08abc", "ends too early"),
        ("string", b"\x02\xff", "not Avro of its schema: UnicodeDecodeError"),
        ("long", b"\x80" * 11, "longer than 10 bytes"),
        ("double", b"1234567", "ends too early"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc", "ends too early"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\x0f\x02", "ends too early"),
        ("long", b"\x02\x02", "1 bytes follow"),
        ("long", b"", "ends too early"),
    ],
)
def test_what_is_not_avro_is_refused(schema: Any, body: bytes, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        parse(schema, schema, body)
    # And where it is only passed over.
    writer = {"type": "record", "name": "R", "fields": [{"name": "gone", "type": schema}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int", "default": 1}]}
    if "Unicode" not in why and "enum" not in why:
        with pytest.raises(PayloadError, match=why):
            parse(writer, reader, body)


def test_blocks_that_tell_their_size_are_read_and_passed_over() -> None:
    array = {"type": "array", "items": "int"}
    body = b"\x03\x04\x02\x04\x02\x06\x00"
    assert parse(array, array, body) == [1, 2, 3]
    writer = {"type": "record", "name": "R", "fields": [{"name": "a", "type": array}, {"name": "n", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    assert parse(writer, reader, body + b"\x0e") == {"n": 7}
    with pytest.raises(PayloadError, match="ends too early"):
        parse(writer, reader, b"\x03\x40\x02")


def test_a_count_of_items_without_bytes_is_refused() -> None:
    """Five bytes would keep a worker busy for hours."""
    empty = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
    writer = {"type": "record", "name": "R", "fields": [{"name": "gone", "type": empty}, {"name": "n", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    with pytest.raises(PayloadError, match="ends too early"):
        parse(writer, reader, b"\xfe\xff\xff\xff\xff\xff\x0f\x00\x02")


def test_a_type_that_holds_itself_is_passed_over() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "kids", "type": {"type": "array", "items": "Node"}}]}
    writer = {"type": "record", "name": "R", "fields": [{"name": "tree", "type": node}, {"name": "n", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    body = encoded(writer, {"tree": {"kids": [{"kids": []}, {"kids": [{"kids": []}]}]}, "n": 7})
    assert parse(writer, reader, body) == {"n": 7}
    with pytest.raises(PayloadError, match="RecursionError"):
        parse(writer, reader, b"\x02" * 100_000)


def test_symbols_that_the_reader_does_not_know() -> None:
    new = {"type": "enum", "name": "E", "symbols": ["B", "A", "C"]}
    assert parse(ENUM, new, b"\x00") == "A"
    with pytest.raises(PayloadError, match="the reader has no symbol 'C'"):
        parse(new, ENUM, b"\x04")
    assert parse(new, {**ENUM, "default": "A"}, b"\x04") == "A"


def test_a_branch_that_cannot_be_read_spoils_only_its_own_records() -> None:
    assert parse(["null", "string", "int"], ["null", "int"], b"\x04\x0a") == 5
    with pytest.raises(PayloadError, match="the writer's string is none of the reader's union"):
        parse(["null", "string", "int"], ["null", "int"], b"\x02\x02a")


def test_a_record_finds_its_branch_by_name_and_another_by_its_kind() -> None:
    def record(name: str, field: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": field, "type": "int", "default": 0}]}

    reader = ["null", record("a.X", "x"), record("a.Y", "y"), "double"]
    assert parse(record("a.Y", "y"), reader, b"\x02") == {"member_y": {"y": 1}}
    assert parse(record("b.Y", "y"), reader, b"\x02") == {"member_y": {"y": 1}}
    assert parse("int", reader, b"\x02") == {"member_double": 1.0}
    assert parse(record("Z", "x"), ["null", record("X", "x")], b"\x02") == {"x": 1}
    with pytest.raises(PayloadError, match="record Z is none of the reader's union"):
        parse(record("Z", "y"), reader, b"\x02")


def test_names_of_a_schema_are_data_and_not_code() -> None:
    symbols = {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}
    writer = {"type": "map", "values": {"type": "record", "name": "R", "fields": [{"name": "class", "type": symbols}]}}
    assert parse(writer, writer, b"\x02\x04'\"\x00\x00") == {"'\"": {"class": "A"}}


def test_what_is_nested_too_deeply_is_refused() -> None:
    schema: Any = "int"
    for _ in range(9):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="nested deeper than 8"):
        parse(schema, schema, b"\x00")
