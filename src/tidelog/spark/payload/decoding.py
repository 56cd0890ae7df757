"""A column of records in the wire format to a column of values: the work of `from_confluent`, without Spark.

Each schema id of a batch is looked up once and kept; a record meets a parser that is already made. A record that
cannot be read is one row's error. A registry that does not answer is no record's fault: it raises, whatever the mode.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelog.spark.payload import formats
from tidelog.spark.payload.columns import build_array
from tidelog.spark.payload.errors import PayloadError, SchemaError, reason
from tidelog.spark.payload.lookups import Lookups
from tidelog.spark.payload.registry_options import RegistryOptions
from tidelog.spark.payload.schema import Schema
from tidelog.spark.payload.wire import HEAD_SIZE, schema_id

Parse = Callable[[bytes], Any]

# A topic has a handful of schemas; a producer that registers one per record must not fill a worker's memory.
_PARSERS_MAX = 512


@dataclass(frozen=True, slots=True)
class DecodeSpec:
    """All that an executor needs. Without a registry every record is read by `schema` itself, whatever its id."""

    schema: Schema
    message: str | None = None
    registry: RegistryOptions | None = None
    permissive: bool = True


class Decoder:
    def __init__(self, spec: DecodeSpec) -> None:
        self._spec = spec
        self._reader = formats.reader(spec.schema, spec.message)
        self._lookups = Lookups(spec.registry) if spec.registry is not None else None
        self._parsers: OrderedDict[int, Parse] = OrderedDict()

    @property
    def arrow_type(self) -> pa.DataType:
        value = self._reader.arrow_type
        return pa.struct([pa.field("value", value), pa.field("error", pa.string())]) if self._spec.permissive else value

    def decode(self, column: pa.Array) -> pa.Array:
        records: list[bytes | None] = column.to_pylist()
        values: list[Any] = [None] * len(records)
        errors: list[str | None] = [None] * len(records)
        # Failures to look up are kept for this batch only: the schema may be there by the next.
        parsers: dict[int, Parse] = {}
        for row, record in enumerate(records):
            if record is None:
                continue
            try:
                number = schema_id(record)
            except PayloadError as bad:
                errors[row] = str(bad)
                continue
            parse = parsers.get(number)
            if parse is None:
                parse = parsers[number] = self._parser(number)
            try:
                values[row] = parse(record[HEAD_SIZE:])
            except PayloadError as bad:
                errors[row] = f"schema {number}: {bad}"
        array = build_array(values, errors, self._reader.build)
        if self._spec.permissive:
            return pa.StructArray.from_arrays([array, pa.array(errors, type=pa.string())], fields=list(self.arrow_type))
        for row, error in enumerate(errors):
            if error is not None:
                raise PayloadError(f"record {row} of {len(errors)} in its batch: {error}")
        return array

    def _parser(self, number: int) -> Parse:
        parse = self._parsers.get(number)
        if parse is not None:
            self._parsers.move_to_end(number)
            return parse
        try:
            parse = self._made(number)
        except (PayloadError, SchemaError) as unusable:
            return _always(reason(unusable))
        self._parsers[number] = parse
        if len(self._parsers) > _PARSERS_MAX:
            self._parsers.popitem(last=False)
        return parse

    def _made(self, number: int) -> Parse:
        if self._lookups is None:
            return self._reader.parser(None)
        return self._lookups.with_schema(number, self._spec.schema.format, self._reader.parser)


def _always(message: str) -> Parse:
    def parse(body: bytes) -> Any:
        raise PayloadError(message)

    return parse
