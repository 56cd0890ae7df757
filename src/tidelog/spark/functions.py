"""Functions on columns: payloads in the Confluent wire format to typed columns, and back.

The schema is found, and everything asked is checked, when the column is made: on the driver, before any job. Executors
look schemas of records up by id and keep what they made of them for as long as their Python worker lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.spark.payload.decoding import Decoder, DecodeSpec
from tidelog.spark.payload.encoding import Encoder, EncodeSpec
from tidelog.spark.payload.errors import PayloadError, RegistryError, SchemaError
from tidelog.spark.payload.registry_options import RegistryOptions
from tidelog.spark.payload.resolving import Asked, References, to_read, to_write

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["PayloadError", "RegistryError", "SchemaError", "from_confluent", "to_confluent"]

MODES = ("permissive", "failfast")

# Of one process. A query has a few of these, and a worker serves one query after the other.
_KEPT = 32


@lru_cache(maxsize=_KEPT)
def _decoder(spec: DecodeSpec) -> Decoder:
    return Decoder(spec)


@lru_cache(maxsize=_KEPT)
def _encoder(spec: EncodeSpec) -> Encoder:
    return Encoder(spec)


def from_confluent(
    column: Column | str,
    schema: str | None = None,
    *,
    registry: str | None = None,
    subject: str | None = None,
    version: str | int = "latest",
    schema_id: int | None = None,
    format: str | None = None,
    mode: str = "permissive",
    message: str | None = None,
    references: References = None,
    options: Mapping[str, str] | None = None,
) -> Column:
    """A binary column in the Confluent wire format as typed values.

    column: the records, such as `value` of the source; null stays null.
    schema: the schema to read by, as text; or `subject` and `version`, or `schema_id`, of the registry.
    registry: its URL. Each record's own schema is looked up there by id and resolved to the one to read by. Without it
        every record is read by `schema`, whatever id it carries.
    format: avro, json or protobuf; by default what the registry says, and avro for a schema given as text.
    mode: permissive gives struct<value, error>: one of the two is null, or both where the record is null. failfast
        gives the value and fails the query at the first record that cannot be read. A registry that is away fails both.
    message: the Protobuf message, where it is not the first of its file.
    references: schemas that `schema` refers to: texts by name, or the registry's list of name, subject and version.
    options: of the registry's connection: basic.auth.user.info, bearer.auth.token, ssl.ca.location,
        ssl.certificate.location, ssl.key.location, timeout.ms, retries.
    """
    if mode not in MODES:
        raise SchemaError(f"mode {mode!r} is not known, use one of {', '.join(MODES)}")
    at = _registry(registry, options)
    asked = Asked(
        schema=schema,
        registry=at,
        subject=subject,
        version=version,
        schema_id=schema_id,
        format=format,
        message=message,
        references=references,
    )
    spec = DecodeSpec(to_read(asked), message, at, mode == "permissive")

    def from_confluent(records: pa.Array) -> pa.Array:
        return _decoder(spec).decode(records)

    # Not deterministic to Spark: it would decode twice where a query filters by the error and uses the value, and what
    # a registry knows may change between the two.
    return _function(from_confluent, Decoder(spec).arrow_type).asNondeterministic()(column)


def to_confluent(
    column: Column | str,
    schema: str | None = None,
    *,
    registry: str | None = None,
    subject: str | None = None,
    version: str | int = "latest",
    schema_id: int | None = None,
    register: bool = False,
    format: str | None = None,
    message: str | None = None,
    references: References = None,
    options: Mapping[str, str] | None = None,
) -> Column:
    """Values as a binary column in the Confluent wire format; null stays null. A row that the schema cannot hold fails.

    schema: as text, with its `schema_id`, or with `registry` and `subject`, where its id is looked up (register=True
        registers it). Without a text, `subject` and `version`, or `schema_id`, name one that the registry has.
    The other arguments are those of `from_confluent`, and so are the types: what it gives can be written again.
    """
    at = _registry(registry, options)
    asked = Asked(
        schema=schema,
        registry=at,
        subject=subject,
        version=version,
        schema_id=schema_id,
        format=format,
        message=message,
        references=references,
    )
    spec = EncodeSpec(to_write(asked, register=register), message)

    def to_confluent(values: pa.Array) -> pa.Array:
        return _encoder(spec).encode(values)

    Encoder(spec)
    return _function(to_confluent, pa.binary())(column)


def _registry(url: str | None, options: Mapping[str, str] | None) -> RegistryOptions | None:
    if url is None:
        if options:
            raise SchemaError("options are of the registry's connection: they need registry, its URL")
        return None
    return RegistryOptions.of(url, options)


def _function(function: Any, kind: pa.DataType) -> Any:
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    return arrow_udf(function, returnType=from_arrow_type(kind, prefer_timestamp_ntz=True))
