"""Which schema a call of `from_confluent` or `to_confluent` means, found on the driver before any job starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.spark.payload import formats
from tidelog.spark.payload.errors import SchemaError
from tidelog.spark.payload.lookups import with_serialized
from tidelog.spark.payload.registry import Registry, Unknown
from tidelog.spark.payload.registry_options import RegistryOptions
from tidelog.spark.payload.schema import AVRO, Named, Schema, known_format

References = Mapping[str, str] | Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The arguments that say which schema: a text, or a subject and version, or an id."""

    schema: str | None
    registry: RegistryOptions | None
    subject: str | None
    version: str | int
    schema_id: int | None
    format: str | None
    message: str | None
    references: References


def to_read(asked: Asked) -> Schema:
    given = [asked.schema is not None, asked.subject is not None, asked.schema_id is not None]
    if sum(given) != 1:
        raise SchemaError("say which schema to read by: exactly one of schema (its text), subject and schema_id")
    if asked.schema is not None:
        schema = _text(asked)
        formats.reader(schema, asked.message)
        return schema
    return _fetched(asked, _needed(asked, "subject" if asked.subject is not None else "schema_id"))


def to_write(asked: Asked, *, register: bool) -> Schema:
    """A schema with an id. Nothing is registered unless `register` says so."""
    if asked.schema is None:
        if register:
            raise SchemaError("register=True needs the schema's text in schema")
        if (asked.subject is None) == (asked.schema_id is None):
            raise SchemaError("say which schema to write by: schema (its text), or one of subject and schema_id")
        return _fetched(asked, _needed(asked, "subject" if asked.subject is not None else "schema_id"))
    schema = _text(asked)
    formats.writer(schema, asked.message)
    if asked.subject is None:
        if register or asked.schema_id is None:
            raise SchemaError(
                "a schema given as text needs its schema_id, or a registry and a subject to find it under"
            )
        return replace(schema, id=_id(asked.schema_id))
    if asked.schema_id is not None:
        raise SchemaError("subject and schema_id exclude each other: the id is looked up under the subject")
    registry = _needed(asked, "subject")
    posted = _posted(asked.references)
    if register:
        return replace(schema, id=registry.register(asked.subject, schema, posted))
    try:
        return replace(schema, id=registry.look_up(asked.subject, schema, posted))
    except Unknown as unknown:
        raise SchemaError(
            f"the registry does not have this schema under subject {asked.subject!r} ({unknown}); "
            "register=True registers it"
        ) from None


def _text(asked: Asked) -> Schema:
    assert asked.schema is not None
    format = known_format(asked.format or AVRO)
    if not asked.references:
        return Schema(format, asked.schema)
    if isinstance(asked.references, Mapping):
        named = tuple(Named(name, Schema(format, text)) for name, text in asked.references.items())
        return Schema(format, asked.schema, named)
    registry = _needed(asked, "references by subject and version")
    return Schema(format, asked.schema, registry.named(_posted(asked.references)))


def _fetched(asked: Asked, registry: Registry) -> Schema:
    try:
        if asked.schema_id is not None:
            schema = registry.schema(_id(asked.schema_id))
        else:
            schema = registry.version(str(asked.subject), asked.version)
    except Unknown as unknown:
        what = (
            f"schema_id {asked.schema_id}"
            if asked.subject is None
            else f"subject {asked.subject!r}, version {asked.version}"
        )
        raise SchemaError(f"the registry does not know {what}: {unknown}") from None
    if asked.format is not None and known_format(asked.format) != schema.format:
        raise SchemaError(f"the registry has this schema as {schema.format}, not as {asked.format}")
    return with_serialized(registry, schema, lambda found: _usable(found, asked.message))


def _usable(schema: Schema, message: str | None) -> Schema:
    formats.reader(schema, message)
    return schema


def _needed(asked: Asked, why: str) -> Registry:
    if asked.registry is None:
        raise SchemaError(f"{why} needs registry, the registry's URL")
    return Registry(asked.registry)


def _posted(references: References) -> list[dict[str, Any]]:
    if not references:
        return []
    if isinstance(references, Mapping):
        raise SchemaError("a registry takes references as a list of name, subject and version, not as texts")
    for reference in references:
        if set(reference) != {"name", "subject", "version"}:
            raise SchemaError("a reference has the keys name, subject and version")
    return [dict(reference) for reference in references]


def _id(number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 32:
        raise SchemaError(f"schema_id is {number!r}, it must be a number from 0 to 4294967295")
    return number
