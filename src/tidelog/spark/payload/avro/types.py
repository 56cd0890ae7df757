"""The Arrow type of an Avro schema, and of a union's branches.

A union with null is the other branch, nullable. A union of several is a struct with a nullable field per branch, named
member_<type> (int and long together are long, float and double are double). A type that holds itself has no columns and
is refused. Times of day have no column type in lake tables and stay numbers.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.spark.payload.avro.parsed import AvroSchema, Node
from tidelog.spark.payload.errors import SchemaError

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_TIMES = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("us"),
    ("fixed", "uuid"): pa.string(),
}
_DECIMAL_DIGITS_MAX = 38
_WIDER = {"int": "long", "float": "double"}


def arrow_type(schema: AvroSchema) -> pa.DataType:
    return _type(schema, schema.root, "value", ())


def branches(schema: AvroSchema, union: Node) -> list[tuple[str, Node]]:
    """The branches of a union other than null, each with its member's name."""
    kinds = [_kind(schema.look_up(branch)) for branch in union]
    found: dict[str, Node] = {}
    for branch, kind in zip(union, kinds, strict=True):
        if kind == "null":
            continue
        wider = _WIDER.get(kind)
        if wider in kinds and not _logical(branch):
            kind, branch = wider, union[kinds.index(wider)]
        definition = schema.look_up(branch)
        name = definition["name"].rpartition(".")[2] if kind in ("record", "error", "enum", "fixed") else kind
        member = f"member_{name.lower()}"
        if member in found and found[member] != branch:
            raise SchemaError(f"two branches of a union would both be the column {member}")
        found[member] = branch
    times = [b for b in found.values() if _logical(b) and _kind(b) in ("int", "long")]
    if times and sum(_kind(schema.look_up(b)) in ("int", "long") for b in found.values()) > 1:
        raise SchemaError("a union of a date or timestamp with another number cannot be told apart, and is not read")
    return list(found.items())


def _type(schema: AvroSchema, node: Node, path: str, within: tuple[str, ...]) -> pa.DataType:
    node = schema.look_up(node)
    if isinstance(node, list):
        return _union(schema, node, path, within)
    kind = _kind(node)
    if kind in ("record", "error"):
        return _record(schema, node, path, within)
    if kind == "array":
        return pa.list_(pa.field("element", _type(schema, node["items"], f"{path}[]", within)))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema, node["values"], f"{path}{{}}", within))
    if _logical(node) == "decimal":
        return _decimal(node, path)
    timed = _TIMES.get((kind, _logical(node)))
    return timed if timed is not None else _PLAIN[kind]


def _record(schema: AvroSchema, node: Node, path: str, within: tuple[str, ...]) -> pa.DataType:
    name = node["name"]
    if name in within:
        raise SchemaError(f"Avro type {name} holds itself (at {path}): a recursive type has no columns")
    if not node["fields"]:
        raise SchemaError(f"Avro record {name} (at {path}) has no fields, so there is nothing to make a column of")
    return pa.struct(
        [pa.field(f["name"], _type(schema, f["type"], f"{path}.{f['name']}", (*within, name))) for f in node["fields"]]
    )


def _union(schema: AvroSchema, node: Node, path: str, within: tuple[str, ...]) -> pa.DataType:
    members = branches(schema, node)
    if not members:
        return pa.null()
    if len(members) == 1:
        return _type(schema, members[0][1], path, within)
    return pa.struct([pa.field(name, _type(schema, branch, f"{path}.{name}", within)) for name, branch in members])


def _decimal(node: Node, path: str) -> pa.DataType:
    precision, scale = int(node["precision"]), int(node.get("scale", 0))
    if precision > _DECIMAL_DIGITS_MAX:
        raise SchemaError(f"decimal of {precision} digits at {path}: a column holds at most {_DECIMAL_DIGITS_MAX}")
    return pa.decimal128(precision, scale)


def _kind(node: Node) -> str:
    return str(node["type"]) if isinstance(node, dict) else str(node)


def _logical(node: Node) -> Any:
    return node.get("logicalType", "") if isinstance(node, dict) else ""
