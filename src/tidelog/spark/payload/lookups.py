"""Schemas of records, by id, on an executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tidelog.spark.payload.errors import PayloadError, SchemaError
from tidelog.spark.payload.registry import Registry, Unknown
from tidelog.spark.payload.registry_options import RegistryOptions
from tidelog.spark.payload.schema import PROTOBUF, Schema

T = TypeVar("T")


class Lookups:
    def __init__(self, options: RegistryOptions) -> None:
        self._url = options.url
        self._registry = Registry(options)

    def with_schema(self, number: int, format: str, make: Callable[[Schema], T]) -> T:
        """What `make` makes of schema `number`.

        An id that the registry does not know, or knows as another format, is the record's fault: anything that begins
        with a zero byte has an id.
        """
        try:
            schema = self._registry.schema(number)
        except Unknown as unknown:
            raise PayloadError(f"the registry at {self._url} does not know this id: {unknown}") from None
        if schema.format != format:
            raise PayloadError(f"is {schema.format} in the registry, not {format}")
        return with_serialized(self._registry, schema, make)


def with_serialized(registry: Registry, schema: Schema, make: Callable[[Schema], T]) -> T:
    """A .proto text that our parser refuses is asked for once more, as the descriptor that the registry makes of it."""
    try:
        return make(schema)
    except SchemaError:
        if schema.format != PROTOBUF or schema.id is None:
            raise
        try:
            serialized = replace(schema, text=registry.serialized(schema.id))
        except Unknown:
            serialized = schema
        if serialized.text == schema.text:
            raise
    return make(serialized)
