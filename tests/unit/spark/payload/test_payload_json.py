"""JSON Schema: shapes, validation, references, and what stays JSON text."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.payload.decoding import Decoder, DecodeSpec
from tidelog.spark.payload.encoding import Encoder, EncodeSpec
from tidelog.spark.payload.errors import PayloadError, SchemaError
from tidelog.spark.payload.schema import Named, Schema
from tidelog.spark.payload.wire import head

ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["id", "when"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "price": {"type": "number"},
        "note": {"type": ["string", "null"]},
        "paid": {"type": "boolean"},
        "when": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "state": {"enum": ["new", "done", None]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
        "buyer": {"$ref": "#/definitions/buyer"},
        "any": {},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "definitions": {"buyer": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
things = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)
)
orders = st.fixed_dictionaries(
    {"id": st.integers(0, 2**63 - 1), "when": st.none() | st.text(max_size=4)},
    optional={
        "price": st.floats(allow_nan=False, allow_infinity=False),
        "note": st.text(max_size=4),
        "paid": st.booleans(),
        "state": st.sampled_from(["new", "done"]),
        "tags": st.lists(st.text(max_size=3), max_size=3),
        "sizes": st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=3),
        "buyer": st.fixed_dictionaries({}, optional={"name": st.text(max_size=3)}),
        "any": things.filter(lambda thing: thing is not None),
        "either": st.text(max_size=3) | st.integers(-5, 5),
    },
)


def record(value: Any) -> bytes:
    return head(1) + json.dumps(value).encode()


def decoded(schema: Any, *records: bytes | None, references: tuple[Named, ...] = ()) -> pa.Array:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Decoder(DecodeSpec(Schema("json", text, references))).decode(pa.array(records, pa.binary()))


def test_the_types_of_columns() -> None:
    assert {field.name: str(field.type) for field in decoded(ORDER).type.field("value").type} == {
        "id": "int64",
        "price": "double",
        "note": "string",
        "paid": "bool",
        "when": "string",
        "state": "string",
        "tags": "list<element: string>",
        "sizes": "map<string, int64>",
        "buyer": "struct<name: string>",
        "any": "string",
        "either": "string",
    }


@settings(max_examples=80)
@given(st.lists(orders, max_size=4))
def test_rows_come_back_as_the_same_json(rows: list[dict[str, Any]]) -> None:
    column = decoded(ORDER, *map(record, rows))
    assert column.field("error").null_count == len(rows), column.field("error").to_pylist()
    encoder = Encoder(EncodeSpec(Schema("json", json.dumps(ORDER), id=9)))
    again = encoder.encode(column.field("value")).to_pylist()
    assert [item[:5] for item in again] == [head(9)] * len(rows)
    assert [json.loads(item[5:]) for item in again] == rows


def test_what_has_no_single_type_is_json_text() -> None:
    value = decoded(ORDER, record({"id": 1, "when": None, "any": {"a": [1, 2]}, "either": 5})).field("value")[0].as_py()
    assert json.loads(value["any"]) == {"a": [1, 2]}
    assert value["either"] == "5"


def test_bad_records_are_told_apart_from_good_ones() -> None:
    good = {"id": 1, "when": "x"}
    column = decoded(
        ORDER,
        record(good),
        record({"id": -1, "when": "x"}),
        record({"when": "x"}),
        head(1) + b"{",
        head(1),
        record(good) + b"x",
        record({**good, "tags": ["a", 2]}),
        head(1) + b'{"id": 1, "when": "\xff"}',
        record({**good, "id": 2**63}),
        record({**good, "id": 3.0}),
    )
    assert [row and row["id"] for row in column.field("value").to_pylist()] == [1, *[None] * 8, 3]
    errors = column.field("error").to_pylist()
    assert "value.id: -1 is less than the minimum of 0" in errors[1]
    assert '"when" ' not in errors[2] and '"id" is a required property' in errors[2]
    assert all("not JSON" in error for error in (errors[3], errors[4], errors[5], errors[7]))
    assert "value.tags[1]: 2 is not of type" in errors[6]
    assert "does not fit its column" in errors[8]


READER = Decoder(DecodeSpec(Schema("json", json.dumps(ORDER))))


@settings(max_examples=200)
@given(st.binary(max_size=30) | things.map(lambda thing: json.dumps(thing).encode()))
def test_any_bytes_are_a_value_or_an_error(body: bytes) -> None:
    [row] = READER.decode(pa.array([head(1) + body])).to_pylist()
    assert (row["value"] is None) != (row["error"] is None)


def test_references_are_followed_and_nothing_else_is() -> None:
    schema = {"type": "object", "properties": {"b": {"$ref": "buyer.json"}, "n": {"$ref": "buyer.json#/properties/n"}}}
    buyer = {"type": "object", "properties": {"n": {"type": "integer"}}}
    named = (Named("buyer.json", Schema("json", json.dumps(buyer))),)
    column = decoded(schema, record({"b": {"n": 1}, "n": 2}), record({"b": {"n": "x"}}), references=named)
    assert column.field("value").to_pylist() == [{"b": {"n": 1}, "n": 2}, None]
    for address in ("buyer.json", "http://127.0.0.1:1/x.json"):
        with pytest.raises(SchemaError, match="neither the schema nor its references"):
            decoded({"$ref": address})
        # In a place that has no columns of its own, where only the validator looks.
        with pytest.raises(SchemaError, match="cannot be used"):
            decoded({"type": "object", "properties": {"x": {"type": "string"}}, "not": {"$ref": address}})


def test_a_schema_that_holds_itself_is_json_text_where_it_does() -> None:
    tree = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    }
    value = {"n": 1, "kids": [{"n": 2, "kids": []}]}
    [row] = decoded(tree, record(value)).field("value").to_pylist()
    assert row["n"] == 1
    assert [json.loads(kid) for kid in row["kids"]] == value["kids"]


def test_a_whole_number_that_a_double_does_not_hold_exactly_is_a_number_all_the_same() -> None:
    column = decoded(ORDER, *[record({"id": 1, "when": "x", "price": price}) for price in (2**60 + 1, 1, 0.5)])
    assert [row["price"] for row in column.field("value").to_pylist()] == [float(2**60 + 1), 1.0, 0.5]


@pytest.mark.parametrize(
    ("schema", "why"),
    [("{", "not JSON"), ('{"type": "nope"}', "cannot be used"), ('{"$ref": "#/definitions/x"}', "leads nowhere")],
)
def test_schemas_that_cannot_be_used_are_refused(schema: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        decoded(schema)


def test_rows_are_validated_before_they_are_written() -> None:
    encoder = Encoder(EncodeSpec(Schema("json", json.dumps(ORDER), id=9)))
    for row, why in (({"id": -1}, "less than the minimum"), ({"id": 1, "any": "{"}, "does not hold JSON")):
        with pytest.raises(PayloadError, match=why):
            encoder.encode(pa.array([{"when": "x", **row}], encoder.arrow_type))
