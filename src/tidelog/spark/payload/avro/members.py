"""Unions of several types, between rows, where they are a struct of members, and what fastavro writes.

Where a schema has no such union there is nothing to change, and no value is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tidelog.spark.payload.avro.parsed import AvroSchema, Node
from tidelog.spark.payload.avro.types import branches
from tidelog.spark.payload.errors import PayloadError

Change = Callable[[Any], Any]

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float, int),
    "string": (str,),
    "enum": (str,),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal, str),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
}


def has_members(schema: AvroSchema) -> bool:
    return any(len(branches(schema, union)) > 1 for union in _unions(schema, schema.root, set()))


def member_value(schema: AvroSchema, node: Node, value: Any) -> Any:
    """A default as a column has it: a union's in its member, which its Python type tells."""
    return _read(schema, node, value)


def from_members(schema: AvroSchema) -> Change:
    return lambda value: _written(schema, schema.root, value)


def _unions(schema: AvroSchema, node: Node, seen: set[str]) -> list[Node]:
    node = schema.look_up(node)
    if isinstance(node, list):
        return [node] + [union for branch in node for union in _unions(schema, branch, seen)]
    if not isinstance(node, dict) or node.get("name") in seen:
        return []
    seen.update([node["name"]] if "name" in node else [])
    inner = [field["type"] for field in node.get("fields", ())]
    inner += [node[key] for key in ("items", "values") if key in node]
    return [union for part in inner for union in _unions(schema, part, seen)]


def _read(schema: AvroSchema, node: Node, value: Any) -> Any:
    if value is None:
        return None
    node = schema.look_up(node)
    if not isinstance(node, list):
        return _inside(schema, node, value, _read)
    members = branches(schema, node)
    member, branch = _chosen(schema, members, value)
    inner = _read(schema, branch, value)
    return inner if len(members) == 1 else {member: inner}


def _chosen(schema: AvroSchema, members: list[tuple[str, Node]], value: Any) -> tuple[str, Node]:
    for member, branch in members:
        definition = schema.look_up(branch)
        kind = definition["type"] if isinstance(definition, dict) else definition
        # bool is an int to Python, and not to Avro.
        if isinstance(value, _PYTHON_TYPES[kind]) and (kind == "boolean") == isinstance(value, bool):
            return member, branch
    raise PayloadError("the default of a union is of none of its branches")


def _inside(schema: AvroSchema, node: Node, value: Any, change: Callable[[AvroSchema, Node, Any], Any]) -> Any:
    kind = node["type"] if isinstance(node, dict) else node
    if kind in ("record", "error"):
        return {f["name"]: change(schema, f["type"], value[f["name"]]) for f in node["fields"] if f["name"] in value}
    if kind == "array":
        return [change(schema, node["items"], item) for item in value]
    if kind == "map":
        return {key: change(schema, node["values"], item) for key, item in dict(value).items()}
    return value


def _written(schema: AvroSchema, node: Node, value: Any) -> Any:
    if value is None:
        return None
    node = schema.look_up(node)
    if not isinstance(node, list):
        return _inside(schema, node, value, _written)
    members = branches(schema, node)
    if len(members) == 1:
        branch = members[0][1]
    else:
        given = [(name, inner) for name, inner in value.items() if inner is not None]
        if not given:
            return None
        if len(given) > 1:
            raise PayloadError(
                f"a union's value is one of its members, not {', '.join(name for name, _ in given)} together"
            )
        branch, value = dict(members)[given[0][0]], given[0][1]
    value = _written(schema, branch, value)
    definition = schema.look_up(branch)
    # Named, fastavro need not try the branches one by one, and does not take an enum for a string.
    return (definition["name"], value) if isinstance(definition, dict) and "name" in definition else value
