"""The column shape of a JSON Schema: what of it has columns, and what stays JSON text.

An object with properties is a struct, one with additionalProperties only a map, an array with items a list. integer
is a long, number a double; a string stays text whatever its format. null beside one other type makes it nullable.
What has no single type (no type at all, several, a choice of several schemas, a schema that holds itself) is JSON
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import pyarrow as pa

from tidelog.spark.payload.errors import SchemaError

_SCALARS = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_CHOICES = ("oneOf", "anyOf", "allOf")
_KINDS_OF = {str: "string", bool: "boolean", int: "integer", float: "number"}


@dataclass(frozen=True, slots=True)
class Text:
    """Anything, as JSON text."""


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: str


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[tuple[str, Shape], ...]
    required: frozenset[str]


@dataclass(frozen=True, slots=True)
class List:
    item: Shape


@dataclass(frozen=True, slots=True)
class Map:
    value: Shape


Shape = Text | Scalar | Struct | List | Map


def arrow_type(shape: Shape) -> pa.DataType:
    match shape:
        case Text():
            return pa.string()
        case Scalar(kind):
            return _SCALARS[kind]
        case Struct(fields):
            return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in fields])
        case List(item):
            return pa.list_(pa.field("element", arrow_type(item)))
        case Map(value):
            return pa.map_(pa.string(), arrow_type(value))


class Shaper:
    """Follows $ref inside the document and into `references` (by their URI), never into the network."""

    def __init__(self, root: Any, references: dict[str, Any]) -> None:
        self._documents = {"": root, **references}

    def shape(self) -> Shape:
        return self._shape(self._documents[""], "", ())

    def _shape(self, node: Any, base: str, within: tuple[str, ...]) -> Shape:
        if not isinstance(node, dict):
            return Text()
        if "$ref" in node:
            target, base = self._follow(node["$ref"], base)
            key = f"{base}|{id(target)}"
            return Text() if key in within else self._shape(target, base, (*within, key))
        for choice in _CHOICES:
            if choice in node:
                return self._chosen(node, choice, base, within)
        kinds = _kinds(node)
        if len(kinds) != 1:
            return Text()
        kind = kinds[0]
        if kind == "object":
            return self._object(node, base, within)
        if kind == "array":
            items = node.get("items")
            return List(self._shape(items, base, within)) if isinstance(items, dict) else Text()
        return Scalar(kind) if kind in _SCALARS else Text()

    def _chosen(self, node: dict[str, Any], choice: str, base: str, within: tuple[str, ...]) -> Shape:
        """One schema and null is that schema, nullable."""
        others = [part for part in node[choice] if part != {"type": "null"}]
        plain = not any(key in node for key in ("properties", "items", *(c for c in _CHOICES if c != choice)))
        return self._shape(others[0], base, within) if plain and len(others) == 1 else Text()

    def _object(self, node: dict[str, Any], base: str, within: tuple[str, ...]) -> Shape:
        properties = node.get("properties")
        if properties:
            # An object that is its own property is not reached by $ref alone: "$ref": "#" is.
            root = f"{base}|{id(node)}"
            inner = within if root in within else (*within, root)
            fields = tuple((name, self._shape(part, base, inner)) for name, part in properties.items())
            return Struct(fields, frozenset(node.get("required", ())))
        more = node.get("additionalProperties")
        return Map(self._shape(more, base, within)) if isinstance(more, dict) and more else Text()

    def _follow(self, reference: str, base: str) -> tuple[Any, str]:
        uri, fragment = urldefrag(urljoin(base, reference) if not reference.startswith("#") else base + reference)
        if uri not in self._documents:
            raise SchemaError(f"$ref {reference!r} is in neither the schema nor its references")
        node = self._documents[uri]
        for part in unquote(fragment).split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(part)] if isinstance(node, list) else node[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise SchemaError(f"$ref {reference!r} leads nowhere") from None
        return node, uri


def _kinds(node: dict[str, Any]) -> list[str]:
    kinds = node.get("type")
    if kinds is None:
        values = node.get("enum", [node["const"]] if "const" in node else [])
        kinds = list(dict.fromkeys(_KINDS_OF.get(type(value), "object") for value in values if value is not None))
        if not kinds and "properties" in node:
            return ["object"]
        return [kind for kind in kinds if kind != "object"] if "object" not in kinds else []
    kinds = kinds if isinstance(kinds, list) else [kinds]
    kinds = [kind for kind in kinds if kind != "null"]
    return ["number"] if sorted(kinds) == ["integer", "number"] else kinds
