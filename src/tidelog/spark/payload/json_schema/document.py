"""A JSON Schema with its references, parsed once: its validator and its shape."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from tidelog.spark.payload.errors import SchemaError, reason
from tidelog.spark.payload.json_schema.shape import Shape, Shaper
from tidelog.spark.payload.schema import Schema


class Document:
    def __init__(self, schema: Schema) -> None:
        root = _json(schema.text)
        references = {named.name: _json(named.schema.text) for named in schema.every_reference()}
        base = root.get("$id", "") if isinstance(root, dict) else ""
        known = dict(references)
        if isinstance(base, str) and base:
            known[base.rstrip("#")] = root
        self.shape: Shape = Shaper(root, known).shape()

        def fetch(uri: str) -> Any:
            """jsonschema-rs would ask the network for what it does not know; a schema must not send us anywhere."""
            for name, document in references.items():
                if uri == name or uri.endswith("/" + name):
                    return document
            raise ValueError(f"$ref {uri!r} is in neither the schema nor its references")

        try:
            self.validator = jsonschema_rs.validator_for(root, retriever=fetch)
        except (ValueError, TypeError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as bad:
            raise SchemaError(f"the JSON Schema cannot be used: {reason(bad)}") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise SchemaError("the JSON Schema is not JSON") from None
