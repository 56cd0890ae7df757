"""A schema as a registry knows it: format, text, the schemas it refers to, and its id where it has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.spark.payload.errors import SchemaError

AVRO, JSON, PROTOBUF = "avro", "json", "protobuf"
FORMATS = (AVRO, JSON, PROTOBUF)


def known_format(name: str) -> str:
    if name not in FORMATS:
        raise SchemaError(f"format {name!r} is not known, use one of {', '.join(FORMATS)}")
    return name


@dataclass(frozen=True, slots=True)
class Named:
    """A schema that another refers to, by a type's full name (Avro), a $ref (JSON) or an import's path (Protobuf)."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    format: str
    text: str
    references: tuple[Named, ...] = ()
    id: int | None = None

    def every_reference(self) -> Iterator[Named]:
        """Those of the references first, so that what is used stands before its user; each name once."""
        seen: set[str] = set()
        yield from _walk(self, seen)


def _walk(schema: Schema, seen: set[str]) -> Iterator[Named]:
    for named in schema.references:
        if named.name not in seen:
            seen.add(named.name)
            yield from _walk(named.schema, seen)
            yield named
