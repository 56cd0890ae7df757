"""Whether the logical types of a writer's schema are those of the reader's.

Avro's resolution looks at a long and not at what it counts: a writer's plain long would become a reader's timestamp of
whatever unit. We refuse that instead. Units of the same kind (milliseconds, microseconds) are converted, not refused.
"""

from __future__ import annotations

from tidelog.spark.payload.avro.parsed import AvroSchema, Node
from tidelog.spark.payload.errors import PayloadError

_SEEN = set[tuple[int, int]]


def check_logical_types(writer: AvroSchema, reader: AvroSchema) -> None:
    _check(writer, reader, writer.root, reader.root, "value", set())


def _check(writer: AvroSchema, reader: AvroSchema, w: Node, r: Node, path: str, seen: _SEEN) -> None:
    w, r = writer.look_up(w), reader.look_up(r)
    if isinstance(w, list) or isinstance(r, list):
        _check_unions(writer, reader, w, r, path, seen)
        return
    if _kind(w) == _kind(r) and _meaning(r) and _meaning(w) != _meaning(r):
        raise PayloadError(
            f"{path} is {_meaning(w) or 'a plain ' + _kind(w)} in the writer's schema and {_meaning(r)} in the reader's"
        )
    if not isinstance(w, dict) or not isinstance(r, dict) or (id(w), id(r)) in seen:
        return
    seen.add((id(w), id(r)))
    if "fields" in w and "fields" in r:
        written = {field["name"]: field["type"] for field in w["fields"]}
        for field in r["fields"]:
            for name in (field["name"], *field.get("aliases", ())):
                if name in written:
                    _check(writer, reader, written[name], field["type"], f"{path}.{field['name']}", seen)
                    break
    for key in ("items", "values"):
        if key in w and key in r:
            _check(writer, reader, w[key], r[key], f"{path}.{key}", seen)


def _check_unions(writer: AvroSchema, reader: AvroSchema, w: Node, r: Node, path: str, seen: _SEEN) -> None:
    for left in w if isinstance(w, list) else [w]:
        for right in r if isinstance(r, list) else [r]:
            a, b = writer.look_up(left), reader.look_up(right)
            if _kind(a) == _kind(b) and _short_name(a) == _short_name(b):
                _check(writer, reader, a, b, path, seen)


def _kind(node: Node) -> str:
    return str(node["type"]) if isinstance(node, dict) else str(node)


def _short_name(node: Node) -> str:
    return str(node.get("name", "")).rpartition(".")[2] if isinstance(node, dict) else ""


def _meaning(node: Node) -> str:
    logical = str(node.get("logicalType", "")) if isinstance(node, dict) else ""
    for meaning in ("local-timestamp", "timestamp", "date", "decimal"):
        if logical.startswith(meaning):
            return meaning
    return ""
