"""Protobuf: types, round trips with the Protobuf library as the other side, evolution, and bad records."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.payload.decoding import Decoder, DecodeSpec
from tidelog.spark.payload.encoding import Encoder, EncodeSpec
from tidelog.spark.payload.errors import PayloadError, SchemaError
from tidelog.spark.payload.protobuf.files import ProtoFile
from tidelog.spark.payload.schema import Schema
from tidelog.spark.payload.wire import head

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";
message Order {
  int32 i = 1; uint32 u = 2; sint64 l = 3; uint64 big = 4; float f = 5; double d = 6; bool b = 7;
  string s = 8; bytes raw = 9; State state = 10; optional int32 maybe = 11;
  oneof how { string card = 12; Line cash = 13; google.protobuf.Empty free = 14; }
  repeated int64 numbers = 15; repeated Line lines = 16;
  map<string, Line> by_name = 17; map<int32, string> by_id = 18; repeated State states = 19;
  google.protobuf.Timestamp at = 20; google.protobuf.Duration took = 21;
  google.protobuf.StringValue word = 22; google.protobuf.UInt64Value wide = 23;
  google.protobuf.Struct extra = 24; Line line = 25; google.protobuf.BoolValue flag = 26;
  enum State { UNKNOWN = 0; NEW = 1; DONE = 2; }
  message Inner { int32 x = 1; }
}
message Line { double price = 1; optional string name = 2; }
"""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
states = st.sampled_from(["UNKNOWN", "NEW", "DONE"])
lines = st.fixed_dictionaries({"price": st.floats(allow_nan=False), "name": st.none() | st.text(max_size=3)})
longs = st.integers(-(2**63), 2**63 - 1)
unsigned = st.integers(0, 2**64 - 1).map(Decimal)
nothing = st.none()
orders = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "u": st.integers(0, 2**32 - 1),
        "l": longs,
        "big": unsigned,
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "b": st.booleans(),
        "s": st.text(max_size=4),
        "raw": st.binary(max_size=4),
        "state": states,
        "maybe": nothing | st.integers(-5, 5),
        "card": nothing,
        "cash": nothing | lines,
        "free": nothing,
        "numbers": st.lists(longs, max_size=3),
        "lines": st.lists(lines, max_size=2),
        "by_name": st.dictionaries(st.text(max_size=3), lines, max_size=2),
        "by_id": st.dictionaries(st.integers(-3, 3), st.text(max_size=2), max_size=2),
        "states": st.lists(states, max_size=2),
        "at": nothing | st.integers(-(10**15), 10**15).map(lambda us: EPOCH + timedelta(microseconds=us)),
        "took": nothing | st.integers(-(10**12), 10**12).map(lambda us: timedelta(microseconds=us)),
        "word": nothing | st.text(max_size=3),
        "wide": nothing | unsigned,
        "extra": nothing | st.dictionaries(st.text(max_size=2), st.booleans(), max_size=2).map(json.dumps),
        "line": nothing | lines,
        "flag": nothing | st.booleans(),
    }
)


def proto(text: str = ORDER, number: int | None = None) -> Schema:
    return Schema("protobuf", text, id=number)


def message_class(text: str = ORDER, name: str | None = None) -> Any:
    return message_factory.GetMessageClass(ProtoFile(proto(text)).message(name))


def decoded(*records: bytes | None, text: str = ORDER, message: str | None = None) -> pa.Array:
    return Decoder(DecodeSpec(proto(text), message)).decode(pa.array(records, pa.binary()))


ORDERS, WRITER, MESSAGE = Decoder(DecodeSpec(proto())), Encoder(EncodeSpec(proto(number=7))), message_class()


def read_back(record: bytes) -> dict[str, Any]:
    assert record[:6] == head(7) + b"\x00"
    message = MESSAGE.FromString(record[6:])
    there: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return there


@settings(max_examples=60)
@given(st.lists(orders | st.none(), max_size=4))
def test_rows_come_back(rows: list[dict[str, Any] | None]) -> None:
    records = WRITER.encode(pa.array(rows, WRITER.arrow_type)).to_pylist()
    column = ORDERS.decode(pa.array(records, pa.binary()))
    assert column.field("error").null_count == len(rows)
    found = column.field("value").to_pylist(maps_as_pydicts="strict")
    for row in (*rows, *found):
        if row is not None and row["extra"] is not None:
            row["extra"] = json.loads(row["extra"])
    assert found == rows
    for row, record in zip(rows, records, strict=True):
        if row is not None:
            there = read_back(record)
            assert there["state"] == row["state"]
            assert int(there["big"]) == row["big"]
            assert [line.get("name") for line in there["lines"]] == [line["name"] for line in row["lines"]]
            assert there.get("extra") == row["extra"]
            assert there.get("maybe") == row["maybe"]


def test_what_the_library_writes_is_read() -> None:
    message = message_class()()
    json_format.ParseDict(
        {
            "i": 5,
            "big": "18446744073709551615",
            "state": "DONE",
            "card": "",
            "by_id": {"3": "x"},
            "at": "1969-12-31T23:59:59.999999999Z",
            "took": "-1.5s",
            "wide": "7",
            "extra": {"a": [1, {"b": None}]},
            "lines": [{"price": 2.5}],
            "flag": False,
        },
        message,
    )
    [row] = decoded(head(1) + b"\x00" + message.SerializeToString()).field("value").to_pylist(maps_as_pydicts="strict")
    extra = row.pop("extra")
    assert json.loads(extra) == {"a": [1, {"b": None}]}
    assert row == {
        "i": 5,
        "u": 0,
        "l": 0,
        "big": Decimal(2**64 - 1),
        "f": 0.0,
        "d": 0.0,
        "b": False,
        "s": "",
        "raw": b"",
        "state": "DONE",
        "maybe": None,
        "card": "",
        "cash": None,
        "free": None,
        "numbers": [],
        "lines": [{"price": 2.5, "name": None}],
        "by_name": {},
        "by_id": {3: "x"},
        "states": [],
        "at": EPOCH - timedelta(microseconds=1),
        "took": timedelta(seconds=-1.5),
        "word": None,
        "wide": Decimal(7),
        "line": None,
        "flag": False,
    }


def test_a_message_without_fields_is_whether_it_is_there() -> None:
    encoder = Encoder(EncodeSpec(proto(number=1)))
    kind = pa.struct([("free", pa.bool_())])
    records = encoder.encode(pa.array([{"free": True}, {"free": False}, {"free": None}], kind)).to_pylist()
    assert [row["free"] for row in decoded(*records).field("value").to_pylist()] == [True, None, None]


def test_an_enum_keeps_numbers_that_the_schema_does_not_know() -> None:
    record = head(1) + b"\x00" + message_class()(state=9).SerializeToString()
    [row] = decoded(record).field("value").to_pylist()
    assert row["state"] == "9"
    encoder = Encoder(EncodeSpec(proto(number=1)))
    assert encoder.encode(decoded(record).field("value")).to_pylist() == [record]
    with pytest.raises(PayloadError, match=r"shop.Order.state has no value 'LATE', it has UNKNOWN, NEW, DONE"):
        encoder.encode(pa.array([{"state": "LATE"}], pa.struct([("state", pa.string())])))


def test_another_message_of_the_file_by_its_indexes() -> None:
    line = message_class(name="Line")(price=1.5).SerializeToString()
    inner = message_class(name="Order.Inner")(x=4).SerializeToString()
    records = [head(1) + b"\x02\x02" + line, head(1) + b"\x04\x00\x00" + inner]
    column = decoded(*records, message="Line")
    assert column.to_pylist() == [
        {"value": {"price": 1.5, "name": None}, "error": None},
        {"value": None, "error": "schema 1: the record is a shop.Order.Inner, not a shop.Line"},
    ]
    assert decoded(records[1], message="shop.Order.Inner").field("value").to_pylist() == [{"x": 4}]
    for name, at in (("Line", b"\x02\x02"), ("Order.Inner", b"\x04\x00\x00"), ("Order", b"\x00")):
        encoder = Encoder(EncodeSpec(proto(number=1), name))
        [written] = encoder.encode(pa.array([{}], pa.struct([]))).to_pylist()
        assert written == head(1) + at


def test_bad_records_are_told_apart_from_good_ones() -> None:
    body = message_class()(s="abc").SerializeToString()
    good = head(1) + b"\x00" + body
    column = decoded(
        good, good[:-1], head(1), head(1) + b"\x02\x0a" + body, head(1) + b"\x04\x00", good + b"\xff", b"\x00", good
    )
    assert [row and row["s"] for row in column.field("value").to_pylist()] == ["abc", *[None] * 6, "abc"]
    errors = column.field("error").to_pylist()
    assert errors[1].startswith("schema 1: not Protobuf of its schema")
    assert errors[2] == "schema 1: the message indexes end too early"
    assert errors[3] == "schema 1: the schema has no message at index [5]"
    assert errors[4] == "schema 1: the message indexes end too early"
    assert errors[5].startswith("schema 1: not Protobuf of its schema")
    assert errors[6].startswith("1 bytes are too few")


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(body: bytes) -> None:
    [row] = ORDERS.decode(pa.array([head(1) + body])).to_pylist()
    assert (row["value"] is None) != (row["error"] is None)


def test_a_timestamp_beyond_its_column_is_one_rows_error() -> None:
    far = message_class()()
    far.at.seconds = 2**60
    near = message_class()()
    near.at.seconds = 1
    column = decoded(*[head(1) + b"\x00" + m.SerializeToString() for m in (near, far, near)])
    assert [row and row["at"] for row in column.field("value").to_pylist()] == [
        EPOCH + timedelta(seconds=1),
        None,
        EPOCH + timedelta(seconds=1),
    ]
    assert "does not fit its column" in column.field("error")[1].as_py()


def test_fields_come_and_go_by_their_numbers() -> None:
    old = 'syntax = "proto3"; message M { string was = 1; int32 gone = 2; }'
    new = 'syntax = "proto3"; message M { string name = 1; repeated int32 extra = 3; optional bool there = 4; }'
    record = head(1) + b"\x00" + message_class(old)(was="x", gone=5).SerializeToString()
    assert decoded(record, text=new).field("value").to_pylist() == [{"name": "x", "extra": [], "there": None}]


def test_a_message_that_holds_itself_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"Node holds itself \(at value.kids\)"):
        decoded(text='syntax = "proto3"; message Node { int32 n = 1; repeated Node kids = 2; }')
