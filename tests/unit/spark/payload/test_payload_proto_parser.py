""".proto text to descriptors: what is read, what is skipped, and what is refused with its line."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import any_pb2, api_pb2, struct_pb2, type_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.payload.errors import PayloadError, SchemaError
from tidelog.spark.payload.protobuf.files import ProtoFile
from tidelog.spark.payload.protobuf.parser import parse
from tidelog.spark.payload.schema import Named, Schema

EVERYTHING = """
// a comment
syntax = "proto3";  /* another
   over lines */
package shop.v1;
import public "google/protobuf/timestamp.proto";
option java_package = "com.example.shop";
option (custom) = { a: 1 b: "}" };

message Order {
  reserved 2, 15, 9 to 11;
  reserved "foo", 'bar';
  option deprecated = true;
  int64 id = 1 [deprecated = true, (custom.opt).x = { y: [1, 2] }, json_name = "ID"];
  optional string note = 0x3;
  repeated sint32 sizes = 4 [packed = false];
  map<string, Line> lines = 5;
  map<int32, bytes> blobs_by_id = 16;
  oneof how {
    option (custom) = 1;
    string card = 6;
    Nested cash = 7;
  }
  google.protobuf.Timestamp at = 8;
  State state = 12;
  .shop.v1.Order.Nested full = 13;
  message Nested { enum Deep { ZERO = 0; ONE = -1 [(o) = "x"]; } Deep deep = 1; Line line = 2; }
  string message = 14;
  string optional = 17;
}
message Line { double price = 1; Order.Nested.Deep deep = 2; };
enum State { option allow_alias = true; UNKNOWN = 0; NEW = 1; FRESH = 1; reserved 5 to max; }
service S { rpc Get(Order) returns (stream Order) { option (x) = {}; } }
extend google.protobuf.FieldOptions { string custom = 50000; }
;
"""


def test_a_file_with_everything() -> None:
    file = ProtoFile(Schema("protobuf", EVERYTHING))
    order, line = file.messages
    fields = order.fields_by_name
    assert order.full_name == "shop.v1.Order"
    assert {name: field.number for name, field in fields.items()} == {
        "id": 1,
        "note": 3,
        "sizes": 4,
        "lines": 5,
        "blobs_by_id": 16,
        "card": 6,
        "cash": 7,
        "at": 8,
        "state": 12,
        "full": 13,
        "message": 14,
        "optional": 17,
    }
    assert fields["note"].has_presence and not fields["id"].has_presence
    assert not fields["sizes"].is_packed
    assert fields["card"].containing_oneof.name == "how"
    assert fields["id"].json_name == "ID"
    assert fields["at"].message_type.full_name == "google.protobuf.Timestamp"
    assert fields["full"].message_type is fields["cash"].message_type
    entry = fields["blobs_by_id"].message_type
    assert (entry.name, entry.GetOptions().map_entry) == ("BlobsByIdEntry", True)
    assert fields["state"].enum_type.values_by_name["FRESH"].number == 1
    assert line.fields_by_name["deep"].enum_type.values_by_name["ONE"].number == -1


def test_indexes_count_the_messages_of_the_text() -> None:
    """Not a map's entry, which stands before Nested in the descriptor."""
    file = ProtoFile(Schema("protobuf", EVERYTHING))
    for indexes, name in (((0,), "Order"), ((0, 0), "Order.Nested"), ((1,), "Line")):
        assert file.at(indexes).full_name == f"shop.v1.{name}"
        assert file.indexes(file.message(name)) == indexes
    for wrong in ((2,), (0, 1), (-1,), (1, 0)):
        with pytest.raises(PayloadError, match="no message at index"):
            file.at(wrong)
    with pytest.raises(SchemaError, match=r"'Nope', it has shop.v1.Order, shop.v1.Line"):
        file.message("Nope")
    with pytest.raises(SchemaError, match="in what it imports"):
        file.indexes(file.message("google.protobuf.Timestamp"))


def test_proto2_with_defaults() -> None:
    text = """
    message M {
      required int32 a = 1 [default = -5];
      optional string s = 2 [default = "a\\tb" 'c\\x41'];
      optional double d = 3 [default = -inf];
      repeated float f = 4 [packed = true];
      optional E e = 5 [default = B];
      extensions 100 to 199;
      enum E { A = 0; B = 0x10; }
    }"""
    message = ProtoFile(Schema("protobuf", text)).messages[0]
    assert message.fields_by_name["a"].is_required
    assert [message.fields_by_name[name].default_value for name in "asde"] == [-5, "a\tbcA", float("-inf"), 16]
    assert message.fields_by_name["f"].is_packed


def test_references_and_known_files_are_imported() -> None:
    text = (
        'syntax = "proto3"; import "a/b.proto"; import "confluent/type/decimal.proto"; import "confluent/meta.proto";'
    )
    text += " message M { x.B b = 1; confluent.type.Decimal d = 2; }"
    deep = Schema("protobuf", 'syntax = "proto3"; package x; message C { int32 n = 1; }')
    inner = Schema(
        "protobuf", 'syntax = "proto3"; package x; import "c.proto"; message B { C c = 1; }', (Named("c.proto", deep),)
    )
    message = ProtoFile(Schema("protobuf", text, (Named("a/b.proto", inner),))).messages[0]
    assert message.fields_by_name["b"].message_type.fields_by_name["c"].message_type.full_name == "x.C"
    with pytest.raises(SchemaError, match=r"import 'a/b.proto' is neither"):
        ProtoFile(Schema("protobuf", text))


@pytest.mark.parametrize("module", [any_pb2, api_pb2, struct_pb2, type_pb2])
def test_a_descriptor_in_base64_is_a_schema_too(module: object) -> None:
    serialized = module.DESCRIPTOR.serialized_pb  # type: ignore[attr-defined]
    file = ProtoFile(Schema("protobuf", base64.b64encode(serialized).decode()))
    named = FileDescriptorProto.FromString(serialized)
    assert [m.name for m in file.messages] == [m.name for m in named.message_type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('edition = "2023";', "line 1: editions are not read"),
        ('syntax = "proto4";', "'proto4' is not read"),
        ('syntax = "proto3";\nmessage M {\n  int32 a 1;\n}', "line 3: expected '=', found '1'"),
        ('syntax = "proto3"; message M { int32 a = x; }', "expected a whole number, found 'x'"),
        ('syntax = "proto3"; message M { required int32 a = 1; }', "no required fields"),
        ('syntax = "proto3"; message M { int32 a = 1;', "found 'the end of the text'"),
        ('syntax = "proto3"; message M { Nope a = 1; }', "Nope"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "cannot be used"),
        ('syntax = "proto3"; message M { int32 a = 08; }', "'08' is not a number"),
        ("message M { int32 a = 1; }", "begins with optional, required or repeated"),
        ("message M { optional group G = 1 { } }", "groups are not read"),
        ("mesage M { }", "expected message, enum, import"),
        ("#", "line 1: '#' is not understood"),
        ('syntax = "proto3"; enum E { A = 0; }', "has no message"),
        ('syntax = "proto3";' + "message M {" * 40, "deeper than 32"),
        ('syntax = "proto3"; import "a.proto"; message M { int32 x = 1; }', "import 'a.proto'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        ProtoFile(Schema("protobuf", text))


WORDS = [
    "message",
    "enum",
    "M",
    "{",
    "}",
    "=",
    ";",
    "1",
    "int32",
    "a",
    "oneof",
    "map",
    "<",
    ">",
    ",",
    "[",
    "]",
    '"x"',
    "(",
]


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join) | st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse(text, "x.proto")
    except SchemaError:
        return


def test_a_file_that_imports_itself_is_refused() -> None:
    loop = Schema("protobuf", 'syntax = "proto3"; import "a.proto"; message A { int32 n = 1; }')
    with pytest.raises(SchemaError):
        ProtoFile(
            Schema("protobuf", 'syntax = "proto3"; import "a.proto"; message M { A a = 1; }', (Named("a.proto", loop),))
        )
