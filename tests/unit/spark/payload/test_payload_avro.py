"""Avro: types, round trips with fastavro as the other side, evolution, and what is refused."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.payload.decoding import Decoder, DecodeSpec
from tidelog.spark.payload.encoding import Encoder, EncodeSpec
from tidelog.spark.payload.errors import PayloadError, SchemaError
from tidelog.spark.payload.schema import Named, Schema
from tidelog.spark.payload.wire import head

WIDE = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "weight", "type": "float"},
        {"name": "price", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "buyer",
            "type": {
                "type": "record",
                "name": "Buyer",
                "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": ["null", "int"]}],
            },
        },
        {"name": "others", "type": {"type": "array", "items": ["null", "Buyer"]}},
    ],
}

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
buyers = st.fixed_dictionaries({"name": st.text(max_size=5), "age": st.none() | st.integers(-(2**31), 2**31 - 1)})
instants = st.integers(-(10**11), 10**11).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
orders = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "count": st.integers(-(2**31), 2**31 - 1),
        "note": st.none() | st.text(max_size=8),
        "weight": st.floats(width=32, allow_nan=False),
        "price": st.floats(allow_nan=False),
        "paid": st.booleans(),
        "raw": st.binary(max_size=8),
        "hash": st.binary(min_size=4, max_size=4),
        "state": st.sampled_from(["NEW", "DONE"]),
        "before": st.none() | st.sampled_from(["NEW", "DONE"]),
        "tags": st.lists(st.text(max_size=4), max_size=3),
        "sizes": st.dictionaries(st.text(max_size=4), st.none() | st.integers(-5, 5), max_size=3),
        "at": instants,
        "seen": st.none() | instants,
        "local": instants.map(lambda at: at.replace(tzinfo=None)),
        "day": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
        "clock": st.integers(0, 86_399_999),
        "sum": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda cents: Decimal(cents).scaleb(-2)),
        "key": st.uuids().map(str),
        "buyer": buyers,
        "others": st.lists(st.none() | buyers, max_size=2),
    }
)


def avro(schema: Any, references: tuple[Named, ...] = (), number: int | None = None) -> Schema:
    return Schema("avro", json.dumps(schema), references, number)


def encoded(schema: Any, value: Any) -> bytes:
    """A record as any other Avro library makes it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return head(1) + out.getvalue()


def decoded(schema: Any, *records: bytes | None) -> pa.Array:
    return Decoder(DecodeSpec(avro(schema))).decode(pa.array(records, pa.binary()))


def values(schema: Any, *records: bytes | None) -> list[Any]:
    column = decoded(schema, *records)
    assert column.field("error").null_count == len(records), column.field("error").to_pylist()
    found: list[Any] = column.field("value").to_pylist(maps_as_pydicts="strict")
    return found


@settings(max_examples=60)
@given(st.lists(orders, max_size=4))
def test_what_fastavro_writes_is_read(rows: list[dict[str, Any]]) -> None:
    plain = json.loads(json.dumps(WIDE).replace('"time-millis"', '"none"'))
    assert values(WIDE, *[encoded(plain, row) for row in rows]) == rows


@settings(max_examples=60)
@given(st.lists(orders | st.none(), max_size=4))
def test_what_is_written_is_read_by_fastavro(rows: list[dict[str, Any] | None]) -> None:
    plain = json.loads(json.dumps(WIDE).replace('"time-millis"', '"none"'))
    encoder = Encoder(EncodeSpec(avro(WIDE, number=7)))
    records = encoder.encode(pa.array(rows, encoder.arrow_type)).to_pylist()
    for row, record in zip(rows, records, strict=True):
        if row is None:
            assert record is None
            continue
        assert record[:5] == head(7)
        source = BytesIO(record[5:])
        there = fastavro.schemaless_reader(source, fastavro.parse_schema(plain))
        assert {**there, "key": str(there["key"])} == row
        assert source.read() == b""


def test_the_types_of_columns() -> None:
    kind = decoded(WIDE).type.field("value").type
    assert {field.name: str(field.type) for field in kind} == {
        "id": "int64",
        "count": "int32",
        "note": "string",
        "weight": "float",
        "price": "double",
        "paid": "bool",
        "raw": "binary",
        "hash": "binary",
        "state": "string",
        "before": "string",
        "tags": "list<element: string>",
        "sizes": "map<string, int64>",
        "at": "timestamp[us, tz=UTC]",
        "seen": "timestamp[us, tz=UTC]",
        "local": "timestamp[us]",
        "day": "date32[day]",
        "clock": "int32",
        "sum": "decimal128(12, 2)",
        "key": "string",
        "buyer": "struct<name: string, age: int32>",
        "others": "list<element: struct<name: string, age: int32>>",
    }


UNION = {
    "type": "record",
    "name": "R",
    "fields": [
        {
            "name": "u",
            "type": [
                "null",
                "string",
                "int",
                "long",
                "boolean",
                "bytes",
                {"type": "enum", "name": "E", "symbols": ["A"]},
                {"type": "record", "name": "a.S", "fields": [{"name": "x", "type": ["null", "int"]}]},
                {"type": "array", "items": "double"},
            ],
        }
    ],
}


@pytest.mark.parametrize(
    ("value", "member"),
    [
        (None, None),
        ("A", {"member_string": "A"}),
        (("E", "A"), {"member_e": "A"}),
        (5, {"member_long": 5}),
        (2**40, {"member_long": 2**40}),
        (True, {"member_boolean": True}),
        (b"A", {"member_bytes": b"A"}),
        (("a.S", {"x": 3}), {"member_s": {"x": 3}}),
        ([1.5], {"member_array": [1.5]}),
    ],
)
def test_a_union_of_several_is_a_struct_of_members(value: Any, member: dict[str, Any] | None) -> None:
    [row] = values(UNION, encoded(UNION, {"u": value}))
    found = row["u"]
    assert (found and {name: inner for name, inner in found.items() if inner is not None}) == member
    encoder = Encoder(EncodeSpec(avro(UNION, number=1)))
    [again] = encoder.encode(pa.array([row], encoder.arrow_type)).to_pylist()
    assert values(UNION, again) == [row]


def test_two_members_at_once_are_refused() -> None:
    encoder = Encoder(EncodeSpec(avro(UNION, number=1)))
    with pytest.raises(PayloadError, match="one of its members, not member_string, member_long together"):
        encoder.encode(pa.array([{"u": {"member_string": "a", "member_long": 1}}], encoder.arrow_type))


def test_nanoseconds_are_cut_and_a_fixed_uuid_is_its_text() -> None:
    key = uuid.UUID("12345678-1234-5678-1234-567812345678")
    base = [
        {"name": "t", "type": "long"},
        {"name": "k", "type": {"type": "fixed", "name": "K", "size": 16}},
    ]
    written = {"type": "record", "name": "R", "fields": base}
    typed = json.loads(json.dumps(written))
    typed["fields"][0]["type"] = {"type": "long", "logicalType": "timestamp-nanos"}
    typed["fields"][1]["type"]["logicalType"] = "uuid"
    record = encoded(written, {"t": 1_999_999, "k": key.bytes})
    assert values(typed, record) == [{"t": EPOCH + timedelta(microseconds=1999), "k": str(key)}]


def evolved(writer: Any, reader: Any, value: Any) -> dict[str, Any]:
    """One record of `writer`, read by `reader`: the row."""
    from tidelog.spark.payload.avro.reading import AvroReader

    read = AvroReader(avro(reader))
    parse = read.parser(avro(writer))
    row: dict[str, Any] = read.build([parse(encoded(writer, value)[5:])]).to_pylist(maps_as_pydicts="strict")[0]
    return row


def record_of(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def test_fields_come_go_move_widen_and_change_their_names() -> None:
    writer = record_of(
        {"name": "gone", "type": {"type": "map", "values": "string"}},
        {"name": "n", "type": "int"},
        {"name": "was", "type": "string"},
    )
    reader = record_of(
        {"name": "name", "type": ["null", "string"], "aliases": ["was"]},
        {"name": "n", "type": "double"},
        {"name": "extra", "type": "string", "default": "none"},
    )
    assert evolved(writer, reader, {"gone": {"a": "b"}, "n": 3, "was": "x"}) == {"name": "x", "n": 3.0, "extra": "none"}


def test_defaults_are_what_reading_would_give() -> None:
    reader = record_of(
        {"name": "a", "type": "int"},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1500},
        {"name": "raw", "type": "bytes", "default": "ÿ"},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "default": "\u0001\u0000",
        },
        {"name": "opt", "type": ["null", "string"], "default": None},
        {"name": "inner", "type": record_of({"name": "b", "type": "bytes", "default": "z"}, name="I"), "default": {}},
    )
    for _ in range(2):
        assert evolved(record_of({"name": "a", "type": "int"}), reader, {"a": 1}) == {
            "a": 1,
            "ms": EPOCH + 1.5 * SECOND,
            "raw": b"\xff",
            "sum": Decimal("2.56"),
            "opt": None,
            "inner": {"b": b"z"},
        }


def test_units_of_time_are_converted_and_a_plain_long_is_not_taken_for_a_time() -> None:
    def timed(logical: str | None) -> dict[str, Any]:
        kind: Any = {"type": "long", "logicalType": logical} if logical else "long"
        return record_of({"name": "t", "type": ["null", kind]})

    at = EPOCH + 1.5 * SECOND
    assert evolved(timed("timestamp-micros"), timed("timestamp-millis"), {"t": at}) == {"t": at}
    with pytest.raises(PayloadError, match=r"value.t is a plain long in the writer's schema and timestamp in the read"):
        evolved(timed(None), timed("timestamp-millis"), {"t": 1})


def test_a_writer_that_cannot_be_resolved_is_the_records_fault() -> None:
    with pytest.raises(PayloadError, match="the writer has no field 'b', and the reader no default"):
        evolved(record_of({"name": "a", "type": "int"}), record_of({"name": "b", "type": "int"}), {"a": 1})


def test_references_are_resolved() -> None:
    inner = Schema("avro", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A", "B"]}))
    outer = record_of({"name": "e", "type": "x.E"}, {"name": "again", "type": ["null", "x.E"]})
    schema = avro(outer, (Named("x.E", inner),), 3)
    encoder = Encoder(EncodeSpec(schema))
    rows = [{"e": "B", "again": None}, {"e": "A", "again": "B"}]
    records = encoder.encode(pa.array(rows, encoder.arrow_type))
    assert Decoder(DecodeSpec(schema)).decode(records).field("value").to_pylist() == rows


SMALL = record_of({"name": "n", "type": "int"}, {"name": "s", "type": "string"})


def test_bad_records_are_told_apart_from_good_ones() -> None:
    good = encoded(SMALL, {"n": 1, "s": "abc"})
    column = decoded(SMALL, good, good[:-1], good + b"x", None, good[:3], b"\x05" + good[1:], good[:5], good)
    assert column.field("value").to_pylist() == [{"n": 1, "s": "abc"}, *[None] * 6, {"n": 1, "s": "abc"}]
    assert column.field("error").to_pylist() == [
        None,
        "schema 1: the Avro record ends too early",
        "schema 1: 1 bytes follow the Avro record",
        None,
        "3 bytes are too few for magic byte and schema id",
        "magic byte 5, not 0: this is not the Confluent wire format",
        "schema 1: the Avro record ends too early",
        None,
    ]


def test_a_value_too_large_for_its_column_is_one_rows_error() -> None:
    long = record_of({"name": "n", "type": "long"}, {"name": "s", "type": "string"})
    rows = [encoded(long, {"n": 2**40 if n == 3 else n, "s": ""}) for n in range(7)]
    column = decoded(SMALL, *rows)
    assert [row and row["n"] for row in column.field("value").to_pylist()] == [0, 1, 2, None, 4, 5, 6]
    [error] = [text for text in column.field("error").to_pylist() if text]
    assert error.startswith("the value does not fit its column")


READER = Decoder(DecodeSpec(avro(WIDE)))


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(body: bytes) -> None:
    [row] = READER.decode(pa.array([head(1) + body])).to_pylist()
    assert (row["value"] is None) != (row["error"] is None)


def test_failfast_raises_at_the_first_bad_record() -> None:
    good = encoded(SMALL, {"n": 1, "s": "abc"})
    decoder = Decoder(DecodeSpec(avro(SMALL), permissive=False))
    assert decoder.decode(pa.array([good, None])).to_pylist() == [{"n": 1, "s": "abc"}, None]
    with pytest.raises(PayloadError, match="record 1 of 3 in its batch: schema 1: the Avro record ends too early"):
        decoder.decode(pa.array([good, good[:-1], b""]))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "not JSON"),
        ('{"type": "enum", "name": "R"}', "cannot be used"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "Nope"}]}', "Nope"),
        ('{"type": "record", "name": "R", "fields": []}', "has no fields"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]}',
            r"R holds itself \(at value.x",
        ),
        ('{"type": "array", "items": "null"}', "array of null"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 50}', "at most 38"),
        ('[{"type": "int", "logicalType": "date"}, "long"]', "cannot be told apart"),
    ],
)
def test_schemas_without_columns_are_refused(schema: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        Decoder(DecodeSpec(Schema("avro", schema)))


@pytest.mark.parametrize(
    ("kind", "row", "why"),
    [
        (pa.struct([("n", pa.int64()), ("s", pa.string())]), {"n": 2**40, "s": ""}, "does not fit the schema"),
        (pa.struct([("n", pa.int32()), ("s", pa.string())]), {"n": 1, "s": None}, "row 0 of 1 in its batch"),
        (pa.struct([("n", pa.int32()), ("z", pa.string())]), {"n": 1, "z": ""}, "no field value.z, it has n, s"),
        (pa.struct([("n", pa.string()), ("s", pa.string())]), {"n": "1", "s": ""}, "value.n is string"),
        (pa.struct([("n", pa.int32())]), {"n": 1}, "row 0 of 1"),
        (pa.int32(), 3, "value is int32"),
    ],
)
def test_rows_that_the_schema_cannot_hold_are_refused(kind: pa.DataType, row: Any, why: str) -> None:
    encoder = Encoder(EncodeSpec(avro(SMALL, number=1)))
    with pytest.raises(PayloadError, match=why):
        encoder.encode(pa.array([row], kind))


def test_a_column_that_is_not_there_gets_its_default() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record_of(
        {"name": "n", "type": "int"},
        {"name": "s", "type": "string", "default": "zz"},
        {"name": "t", "type": millis, "default": 1500},
        {"name": "raw", "type": "bytes", "default": "ÿ"},
    )
    encoder = Encoder(EncodeSpec(avro(schema, number=1)))
    [record] = encoder.encode(pa.array([{"n": 1}], pa.struct([("n", pa.int64())]))).to_pylist()
    assert values(schema, record) == [{"n": 1, "s": "zz", "t": EPOCH + 1.5 * SECOND, "raw": b"\xff"}]


def test_a_long_that_a_double_does_not_hold_exactly_is_widened_all_the_same() -> None:
    row = evolved(
        record_of({"name": "n", "type": "long"}), record_of({"name": "n", "type": "double"}), {"n": 2**60 + 1}
    )
    assert row == {"n": float(2**60 + 1)}
