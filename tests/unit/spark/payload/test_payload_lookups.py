"""Decoding with a registry: schemas by id, kept, evolved; ids that it does not know; and a registry that is away."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from tests.unit.spark.payload.http_registry import HttpRegistry
from tests.unit.spark.payload.test_payload_avro import encoded, record_of
from tidelog.spark.payload import decoding
from tidelog.spark.payload.decoding import Decoder, DecodeSpec
from tidelog.spark.payload.encoding import Encoder, EncodeSpec
from tidelog.spark.payload.errors import PayloadError, RegistryError, SchemaError
from tidelog.spark.payload.protobuf.files import ProtoFile
from tidelog.spark.payload.protobuf.parser import parse
from tidelog.spark.payload.registry_options import RegistryOptions
from tidelog.spark.payload.resolving import Asked, to_read, to_write
from tidelog.spark.payload.schema import Schema
from tidelog.spark.payload.wire import head

OLD = record_of({"name": "n", "type": "int"})
NEW = record_of({"name": "n", "type": "long"}, {"name": "s", "type": "string", "default": "none"})


def asked(registry: HttpRegistry | None = None, **given: Any) -> Asked:
    nothing = dict.fromkeys(("schema", "subject", "schema_id", "format", "message", "references"))
    at = RegistryOptions.of(registry.url, {"retries": "0"}) if registry else None
    return Asked(**{**nothing, "registry": at, "version": "latest", **given})


def with_id(schema: Any, value: Any, number: int) -> bytes:
    return head(number) + encoded(schema, value)[5:]


def decoder(registry: HttpRegistry, permissive: bool = True, **given: Any) -> Decoder:
    request = asked(registry, **given)
    return Decoder(DecodeSpec(to_read(request), given.get("message"), request.registry, permissive))


def test_each_record_is_read_by_its_writers_schema(registry: HttpRegistry) -> None:
    old = registry.add("s", json.dumps(OLD))
    new = registry.add("s", json.dumps(NEW))
    decode = decoder(registry, subject="s")
    records = [with_id(OLD, {"n": 1}, old), with_id(NEW, {"n": 2, "s": "x"}, new), with_id(OLD, {"n": 3}, old)] * 50
    registry.asked.clear()
    rows = decode.decode(pa.array(records)).field("value").to_pylist()
    assert rows == [{"n": 1, "s": "none"}, {"n": 2, "s": "x"}, {"n": 3, "s": "none"}] * 50
    decode.decode(pa.array(records))
    # Once each, not once a record and not once a batch.
    assert registry.asked == [f"GET /schemas/ids/{old}", f"GET /schemas/ids/{new}"]


def test_an_unknown_id_in_the_middle_is_that_rows_error(registry: HttpRegistry) -> None:
    old = registry.add("s", json.dumps(OLD))
    decode = decoder(registry, subject="s")
    good = with_id(OLD, {"n": 1}, old)
    registry.asked.clear()
    column = decode.decode(pa.array([good, head(99) + b"\x02", good, head(99) + b"\x04"]))
    assert column.field("value").to_pylist() == [{"n": 1}, None, {"n": 1}, None]
    expected = f"schema 99: the registry at {registry.url} does not know this id: Schema 99 not found (40403)"
    assert column.field("error").to_pylist() == [None, expected, None, expected]
    assert registry.asked == [f"GET /schemas/ids/{old}", "GET /schemas/ids/99"]
    # Registered since: the next batch asks again.
    registry.schemas[99] = registry.schemas[old]
    assert decode.decode(pa.array([head(99) + b"\x04"])).field("value").to_pylist() == [{"n": 2}]


def test_an_unknown_id_fails_fast(registry: HttpRegistry) -> None:
    registry.add("s", json.dumps(OLD))
    with pytest.raises(PayloadError, match="record 0 of 1 in its batch: schema 99: the registry"):
        decoder(registry, permissive=False, subject="s").decode(pa.array([head(99) + b"\x02"]))


@pytest.mark.parametrize("permissive", [True, False])
@pytest.mark.parametrize("fault", [503, 401, "drop"])
def test_a_registry_that_is_away_makes_no_record_bad(
    registry: HttpRegistry, permissive: bool, fault: int | str
) -> None:
    old = registry.add("s", json.dumps(OLD))
    decode = decoder(registry, permissive, subject="s")
    registry.faults = [fault]
    records = pa.array([with_id(OLD, {"n": 1}, old)])
    with pytest.raises(RegistryError):
        decode.decode(records)
    # And when it is back, nothing was remembered of it.
    assert decode.decode(records)[0].as_py() in ({"value": {"n": 1}, "error": None}, {"n": 1})


def test_an_id_of_another_format_and_one_that_cannot_be_resolved(registry: HttpRegistry) -> None:
    registry.add("s", json.dumps(NEW))
    other = registry.add("j", '{"type": "object"}', "JSON")
    alien = registry.add("a", json.dumps(record_of({"name": "x", "type": "string"}, name="Other")))
    column = decoder(registry, subject="s").decode(pa.array([head(other) + b"{}", head(alien) + b"\x02x"]))
    errors = column.field("error").to_pylist()
    assert errors[0] == f"schema {other}: is json in the registry, not avro"
    assert errors[1] == f"schema {alien}: the writer has no field 'n', and the reader no default for it"


def test_parsers_that_are_kept_are_bounded(registry: HttpRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_PARSERS_MAX", 2)
    numbers = [registry.add("s", json.dumps({**OLD, "doc": str(version)})) for version in range(4)]
    decode = decoder(registry, schema_id=numbers[0])
    column = decode.decode(pa.array([with_id(OLD, {"n": n}, number) for n, number in enumerate(numbers)]))
    assert column.field("value").to_pylist() == [{"n": n} for n in range(4)]
    registry.asked.clear()
    # 2 and 3 are kept. 2 is used, so it is 3 that makes place for 0.
    for number in (numbers[2], numbers[0], numbers[2], numbers[3]):
        decode.decode(pa.array([with_id(OLD, {"n": 0}, number)]))
    assert registry.asked == [f"GET /schemas/ids/{numbers[0]}", f"GET /schemas/ids/{numbers[3]}"]


def test_references_of_a_writers_schema(registry: HttpRegistry) -> None:
    enum = {"type": "enum", "name": "x.E", "symbols": ["A", "B"]}
    registry.add("e", json.dumps(enum))
    outer = json.dumps(record_of({"name": "e", "type": "x.E"}))
    number = registry.add("s", outer, references=[{"name": "x.E", "subject": "e", "version": 1}])
    column = decoder(registry, subject="s").decode(pa.array([head(number) + b"\x02"]))
    assert column.to_pylist() == [{"value": {"e": "B"}, "error": None}]


EDITION = 'edition = "2023"; message M { string s = 1; }'
PROTO = 'syntax = "proto3"; message M { string s = 1; message In { int32 x = 1; } } message N { int32 y = 1; }'


def test_a_proto_that_we_do_not_parse_comes_as_a_descriptor(registry: HttpRegistry) -> None:
    number = registry.add("p", EDITION, "PROTOBUF")
    with pytest.raises(SchemaError, match="editions are not read"):
        to_read(asked(registry, subject="p"))
    serialized = parse('syntax = "proto3"; message M { string s = 1; }', "x").SerializeToString()
    registry.serialized[number] = base64.b64encode(serialized).decode()
    reading = decoder(registry, subject="p")
    assert reading.decode(pa.array([head(number) + b"\x00\x0a\x01a"])).field("value").to_pylist() == [{"s": "a"}]


def test_messages_of_a_writers_file_are_told_by_name(registry: HttpRegistry) -> None:
    """The writer's file has them in another order than the reader's."""
    turned = 'syntax = "proto3"; message N { int32 y = 1; } message M { string s = 1; }'
    first = registry.add("p", PROTO, "PROTOBUF")
    second = registry.add("p", turned, "PROTOBUF")
    message = message_factory.GetMessageClass(ProtoFile(Schema("protobuf", PROTO)).message("M"))(s="a")
    body = message.SerializeToString()
    decode = decoder(registry, subject="p", version=1, message="M", format="protobuf")
    column = decode.decode(pa.array([head(first) + b"\x00" + body, head(second) + b"\x02\x02" + body]))
    assert column.field("value").to_pylist() == [{"s": "a"}] * 2
    wrong = decode.decode(pa.array([head(second) + b"\x00" + body])).field("error")[0].as_py()
    assert wrong == f"schema {second}: the record is a N, not a M"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "exactly one of schema"),
        ({"schema": "{}", "subject": "s"}, "exactly one of schema"),
        ({"subject": "nope"}, "does not know subject 'nope', version latest"),
        ({"subject": "s", "version": 7}, "does not know subject 's', version 7"),
        ({"schema_id": 99}, "does not know schema_id 99"),
        ({"schema_id": -1}, "schema_id is -1, it must be"),
        ({"subject": "s", "format": "json"}, "has this schema as avro, not as json"),
        ({"subject": "s", "format": "xml"}, "format 'xml' is not known, use one of avro, json, protobuf"),
        ({"subject": "s", "message": "M"}, "message names a Protobuf message, the schema is avro"),
        ({"schema": '"int"', "references": [{"name": "x"}]}, "keys name, subject and version"),
    ],
)
def test_what_is_asked_is_checked_before_any_job(registry: HttpRegistry, given: dict[str, Any], why: str) -> None:
    registry.add("s", json.dumps(OLD))
    with pytest.raises(SchemaError, match=why):
        to_read(asked(registry, **given))


def test_without_a_registry_there_is_only_the_text() -> None:
    assert to_read(asked(schema='"int"')) == Schema("avro", '"int"')
    for given in ({"subject": "s"}, {"schema_id": 1}):
        with pytest.raises(SchemaError, match="needs registry, the registry's URL"):
            to_read(asked(**given))


def test_an_id_is_looked_up_and_registered_only_when_asked(registry: HttpRegistry) -> None:
    request = asked(registry, schema=json.dumps(OLD), subject="s")
    with pytest.raises(SchemaError, match="register=True registers it"):
        to_write(request, register=False)
    assert registry.schemas == {}
    number = to_write(request, register=True).id
    assert number is not None and registry.subjects == {"s": [number]}
    assert to_write(request, register=False).id == number
    assert to_write(asked(registry, subject="s"), register=False).id == number
    assert to_write(asked(registry, schema_id=number), register=False).text == json.dumps(OLD)
    assert to_write(asked(schema=json.dumps(OLD), schema_id=5), register=False).id == 5


def test_references_are_registered_with_their_user(registry: HttpRegistry) -> None:
    registry.add("e", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A", "B"]}))
    references = [{"name": "x.E", "subject": "e", "version": 1}]
    outer = json.dumps(record_of({"name": "e", "type": "x.E"}))
    schema = to_write(asked(registry, schema=outer, subject="s", references=references), register=True)
    assert registry.schemas[schema.id or 0]["references"] == references
    encoder = Encoder(EncodeSpec(schema))
    [record] = encoder.encode(pa.array([{"e": "B"}], encoder.arrow_type)).to_pylist()
    assert decoder(registry, subject="s").decode(pa.array([record])).field("value").to_pylist() == [{"e": "B"}]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "say which schema to write by"),
        ({"schema": '"int"'}, "needs its schema_id, or a registry and a subject"),
        ({"schema": '"int"', "subject": "s", "schema_id": 1}, "exclude each other"),
        ({"subject": "nope"}, "does not know subject 'nope'"),
        ({"schema": '"int"', "subject": "s", "references": {"a": '"int"'}}, "not as texts"),
    ],
)
def test_what_is_asked_of_writing_is_checked(registry: HttpRegistry, given: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        to_write(asked(registry, **given), register=False)
