"""An Avro schema, parsed once: full names everywhere, the types it refers to inside it, and logical types as we read
them.

Writing is fastavro's. It takes a datetime for a timestamp, which costs more than the rest of a record; the schema that
it is given therefore names logical types of our own, which count microseconds as Spark does, or none where the number
is right already. What a type is to a column, and how it is read, is asked of the schema as it was before.
"""

from __future__ import annotations

import json
from decimal import Context, Decimal
from typing import Any, TypeAlias
from uuid import UUID

import fastavro
import fastavro.schema
import fastavro.write

from tidelog.spark.payload.errors import SchemaError, reason
from tidelog.spark.payload.schema import Schema

# A name, a list (union) or a dictionary, as Avro's JSON has it.
Node: TypeAlias = Any

MILLIS, NANOS, UUID_BYTES = "tidelog-millis", "tidelog-nanos", "tidelog-uuid"
_OWN = {
    ("long", "timestamp-millis"): MILLIS,
    ("long", "local-timestamp-millis"): MILLIS,
    ("long", "timestamp-nanos"): NANOS,
    ("long", "local-timestamp-nanos"): NANOS,
    ("fixed", "uuid"): UUID_BYTES,
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
}
# The usual context rounds to 28 digits; a column has up to 38.
_EXACT = Context(prec=80)
_NAMED = ("record", "error", "enum", "fixed")

fastavro.write.LOGICAL_WRITERS[f"long-{MILLIS}"] = lambda number, schema: number // 1000
fastavro.write.LOGICAL_WRITERS[f"long-{NANOS}"] = lambda number, schema: number * 1000
fastavro.write.LOGICAL_WRITERS[f"fixed-{UUID_BYTES}"] = lambda text, schema: (
    UUID(text).bytes if isinstance(text, str) else text
)


class AvroSchema:
    """`root` is as written, with full names, for whoever asks for types; `compiled` is for fastavro."""

    def __init__(self, schema: Schema) -> None:
        self.named: dict[str, Node] = {}
        try:
            for reference in schema.every_reference():
                fastavro.parse_schema(_json(reference.schema.text), self.named)
            self.root: Node = fastavro.parse_schema(_json(schema.text), self.named)
            self.compiled: Node = fastavro.parse_schema(self._compile(self.root, set()))
            self._set_defaults(self.compiled)
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as bad:
            raise SchemaError(f"the Avro schema cannot be used: {reason(bad)}") from None
        except (KeyError, TypeError, AttributeError) as bad:
            raise SchemaError(f"the Avro schema cannot be used: {type(bad).__name__} at {bad}") from None

    def look_up(self, node: Node) -> Node:
        """The definition behind a name, or inside {"type": {...}}; anything else is itself."""
        while isinstance(node, dict) and isinstance(node["type"], (dict, list)):
            node = node["type"]
        return self.named.get(node, node) if isinstance(node, str) else node

    def _compile(self, node: Node, done: set[str]) -> Node:
        if isinstance(node, list):
            return [self._compile(branch, done) for branch in node]
        if isinstance(node, str):
            # Inside a schema of its own a type is defined where it is first used, wherever the reference had it.
            return self._compile(self.named[node], done) if node in self.named and node not in done else node
        kind = node["type"]
        if isinstance(kind, (dict, list)):
            return self._compile(kind, done)
        if kind in _NAMED:
            if node["name"] in done:
                return node["name"]
            done.add(node["name"])
        out = {key: value for key, value in node.items() if key != "logicalType" and not key.startswith("__")}
        own = _OWN.get((kind, node.get("logicalType", "")))
        if own is not None:
            out["logicalType"] = own
        if kind in ("record", "error"):
            out["fields"] = [{**field, "type": self._compile(field["type"], done)} for field in node["fields"]]
        elif kind == "array":
            out["items"] = self._compile(node["items"], done)
            if out["items"] == "null":
                # A few bytes would count as many items as they like.
                raise SchemaError("the Avro schema has an array of null, which is not read")
        elif kind == "map":
            out["values"] = self._compile(node["values"], done)
        return out

    def _set_defaults(self, node: Node) -> None:
        """fastavro gives a default as the schema's JSON has it; a column needs it as reading would give it."""
        if isinstance(node, list):
            for branch in node:
                self._set_defaults(branch)
        elif isinstance(node, dict):
            for field in node.get("fields", ()):
                self._set_defaults(field["type"])
                if "default" in field:
                    field["default"] = self.default(field)
            for key in ("items", "values"):
                self._set_defaults(node.get(key))

    def default(self, field: Node) -> Any:
        """A field's default, as reading would give it."""
        return self._default(field["type"], field["default"])

    def _default(self, node: Node, value: Any) -> Any:
        node = self.look_up(node)
        if isinstance(node, list):
            # A default is of the first branch that it fits; null and not null is all the difference that is made.
            fitting = [branch for branch in node if (branch == "null") == (value is None)]
            return self._default(fitting[0], value) if fitting else value
        kind = node["type"] if isinstance(node, dict) else node
        logical = node.get("logicalType", "") if isinstance(node, dict) else ""
        own = _OWN.get((kind, logical), logical)
        if kind in ("bytes", "fixed") and isinstance(value, str):
            raw = value.encode("latin-1")
            if own == "decimal":
                return decimal_of(raw, int(node.get("scale", 0)))
            return str(UUID(bytes=raw)) if own == UUID_BYTES else raw
        if kind == "long" and own in (MILLIS, NANOS):
            return value * 1000 if own == MILLIS else value // 1000
        if kind in ("record", "error"):
            return {
                f["name"]: self._default(f["type"], value[f["name"]]) if f["name"] in value else self.default(f)
                for f in node["fields"]
            }
        if kind == "array":
            return [self._default(node["items"], item) for item in value]
        if kind == "map":
            return {key: self._default(node["values"], item) for key, item in value.items()}
        return value


def decimal_of(raw: bytes, scale: int) -> Decimal:
    return _EXACT.scaleb(Decimal(int.from_bytes(raw, "big", signed=True)), -scale)


def _json(text: str) -> Node:
    try:
        return json.loads(text)
    except ValueError:
        raise SchemaError("the Avro schema is not JSON") from None
