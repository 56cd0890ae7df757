"""Writes and compiles the reader of one message in one version: straight-line Python, nested structs inlined.

The reader is `read(buf, p) -> (message, position)`. It trusts nothing: each length is held against the bytes that are
left before anything is made of it. Running off the end may surface as IndexError or struct.error, of which the facade
makes a ProtocolError. `buf` is bytes, or a memoryview where the message carries records: those are handed on uncopied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tidelog.protocol.schema import Field, MessageSchema, StructSchema
from tidelog.protocol.source import (
    FIXED,
    STRING_BYTES_MAX,
    Source,
    default_source,
    read_tag,
    read_uvarint,
    refuse,
    skip_tags,
)

_PRIMITIVES: dict[str, Any] = {
    "uvarint": read_uvarint,
    "refuse": refuse,
    "skip_tags": skip_tags,
    "read_tag": read_tag,
    "unpack_from": struct.unpack_from,
}

ELEMENTS_FREE = 250_000
ELEMENT_BYTES = 64
"""What a request may hold: so many elements, and one more for so many bytes. Three bytes can be an element that takes
a hundred times as much memory: a frame of a hundred megabytes would be several gigabytes, and half a minute's work."""


def has_records(message: MessageSchema) -> bool:
    schemas = [message.root, *message.structs.values()]
    return any(field.type == "records" for schema in schemas for field in schema.fields)


def compile_reader(message: MessageSchema, version: int, shape: type[Any]) -> Callable[..., Any]:
    return _Reader(message, version, shape).build()


class _Reader(Source):
    def __init__(self, message: MessageSchema, version: int, shape: type[Any]) -> None:
        super().__init__(message, version, shape)
        self._keeps_views = has_records(message)
        self._counts_elements = message.kind == "request"
        self._run: list[tuple[str, str]] = []

    def build(self) -> Callable[..., Any]:
        self.line("end = len(buf)")
        if self._counts_elements:
            self.line(f"left = {ELEMENTS_FREE} + end // {ELEMENT_BYTES}")
        value = self._struct(self.message.root)
        self.line(f"return {value}, p")
        return self.compile("def read(buf, p):", "read", _PRIMITIVES)

    # Runs: fixed-size values, and the first byte or bytes of a length, are unpacked by one call.

    def _fixed(self, letter: str, hint: str) -> str:
        name = self.fresh(hint)
        self._run.append((letter, name))
        return name

    def _flush(self) -> None:
        if not self._run:
            return
        letters = "".join(letter for letter, _ in self._run)
        names = ", ".join(name for _, name in self._run)
        if letters == "B":
            self.line(f"{names} = buf[p]")
        else:
            unpack = self.constant_struct(letters)
            self.line(f"({names},) = {unpack}(buf, p)")
        self.line(f"p += {struct.calcsize('>' + letters)}")
        self._run = []

    def constant_struct(self, letters: str) -> str:
        name = "U_" + letters.replace("?", "o")
        if name not in self.names:
            self.names[name] = struct.Struct(">" + letters).unpack_from
        return name

    # Structs

    def _struct(self, schema: StructSchema) -> str:
        body, tagged, _ = self.fields_of(schema)
        values = {field.name: self._field(field) for field in body}
        if self.is_flexible:
            values |= self._tags(tagged)
        self._flush()
        shape = self.constant(self.shape_of(schema), "S")
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        result = self.fresh("s")
        self.line(f"{result} = {shape}({arguments})")
        return result

    def _tags(self, fields: list[Field]) -> dict[str, str]:
        count = self._fixed("B", "t")
        self._flush()
        if not fields:
            self.line(f"if {count}:")
            self.line(f"    p = skip_tags(buf, p, {count}, end)")
            return {}
        values = {field.name: self.fresh("v") for field in fields}
        for field in fields:
            self.line(f"{values[field.name]} = {self._default(field)}")
        self.line(f"if {count}:")
        self.deeper()
        self.line(f"if {count} > 127:")
        self.line(f"    {count}, p = uvarint(buf, p, {count})")
        self._tag_loop(count, fields, values)
        self.shallower()
        return values

    def _tag_loop(self, count: str, fields: list[Field], values: dict[str, str]) -> None:
        tag, size, stop = self.fresh("tag"), self.fresh("size"), self.fresh("stop")
        self.line(f"for _ in range({count}):")
        self.deeper()
        self.line(f"{tag}, {size}, p = read_tag(buf, p, end)")
        self.line(f"{stop} = p + {size}")
        for number, field in enumerate(fields):
            self.line(f"{'elif' if number else 'if'} {tag} == {field.tag}:")
            self.deeper()
            value = self._field(field)
            self._flush()
            self.line(f"{values[field.name]} = {value}")
            self.shallower()
        self.line("else:")
        self.line(f"    p = {stop}")
        self.line(f"if p != {stop}:")
        self.line(f"    refuse(f'tag {{{tag}}} has another length than its {{{size}}} bytes')")
        self.shallower()

    def _default(self, field: Field) -> str:
        if field.is_struct and not field.is_array and not field.is_null_by_default:
            return self.constant(self.shape_of(self.message.structs[field.type]), "S") + "()"
        return default_source(field)

    # Fields

    def _field(self, field: Field) -> str:
        if field.is_array:
            return self._array(field)
        if field.is_struct:
            return self._struct_field(field)
        if field.type in FIXED:
            return self._fixed(FIXED[field.type], "v")
        return self._sized(field.type, self.is_compact(field), field.nullable.has(self.version), field.name)

    def _struct_field(self, field: Field) -> str:
        schema = self.message.structs[field.type]
        if not field.nullable.has(self.version):
            return self._struct(schema)
        if field.tagged.has(self.version):
            # Within a tag Kafka marks a null struct by a varint 0, outside by a byte -1; 1 is "present" in both.
            flag = self._length("b", True, True, field.name)
        else:
            flag = self._fixed("b", "n")
            self._flush()
        result = self.fresh("v")
        self.line(f"{result} = None")
        self.line(f"if {flag} >= 0:")
        self.deeper()
        self.line(f"{result} = {self._struct(schema)}")
        self.shallower()
        return result

    def _length(self, letter: str, is_compact: bool, is_nullable: bool, name: str) -> str:
        """Reads a length (-1 for null) and leaves the run flushed."""
        length = self._fixed("B" if is_compact else letter, "n")
        self._flush()
        if is_compact:
            self.line(f"if {length} > 127:")
            self.line(f"    {length}, p = uvarint(buf, p, {length})")
            self.line(f"{length} -= 1")
        if not is_nullable:
            self.line(f"if {length} < 0:")
            self.line(f"    refuse('{name} must not be null')")
        return length

    def _sized(self, kind: str, is_compact: bool, is_nullable: bool, name: str) -> str:
        length = self._length("h" if kind == "string" else "i", is_compact, is_nullable, name)
        result, stop = self.fresh("v"), self.fresh("q")
        if is_nullable:
            self.line(f"{result} = None")
            self.line(f"if {length} >= 0:")
            self.deeper()
        self.line(f"{stop} = p + {length}")
        too_long = f" or {length} > {STRING_BYTES_MAX}" if kind == "string" and is_compact else ""
        self.line(f"if {stop} > end{too_long}:")
        self.line(f"    refuse(f'{name} claims {{{length}}} bytes and {{end - p}} are left')")
        self.line(f"{result} = {self._slice(kind, 'p', stop)}")
        self.line(f"p = {stop}")
        if is_nullable:
            self.shallower()
        return result

    def _slice(self, kind: str, start: str, stop: str) -> str:
        piece = f"buf[{start}:{stop}]"
        if kind == "string":
            return f"str({piece}, 'utf-8')" if self._keeps_views else f"{piece}.decode()"
        if kind == "records" or not self._keeps_views:
            return piece
        return f"bytes({piece})"

    # Arrays

    def _array(self, field: Field) -> str:
        is_nullable = field.nullable.has(self.version)
        count = self._length("i", self.is_compact(field), is_nullable, field.name)
        result = self.fresh("v")
        if is_nullable:
            self.line(f"{result} = None")
            self.line(f"if {count} >= 0:")
            self.deeper()
        size = self._size_min(field)
        self.line(f"if {count} * {size} > end - p:" if size > 1 else f"if {count} > end - p:")
        self.line(f"    refuse(f'{field.name} claims {{{count}}} elements and {{end - p}} bytes are left')")
        if self._counts_elements:
            self.line(f"left -= {count}")
            self.line("if left < 0:")
            self.line("    refuse(f'a request of {end} bytes has too many elements')")
        if field.type in FIXED:
            self._fixed_elements(field.type, count, result)
        else:
            self._elements(field, count, result)
        if is_nullable:
            self.shallower()
        return result

    def _fixed_elements(self, kind: str, count: str, result: str) -> None:
        letter = FIXED[kind]
        stop = self.fresh("q")
        self.line(f"{stop} = p + {count} * {struct.calcsize('>' + letter)}")
        if kind == "uuid":
            piece = self._slice("bytes", "i", "i + 16")
            self.line(f"{result} = [{piece} for i in range(p, {stop}, 16)]")
        else:
            self.line(f"{result} = list(unpack_from(f'>{{{count}}}{letter}', buf, p))")
        self.line(f"p = {stop}")

    def _elements(self, field: Field, count: str, result: str) -> None:
        add = self.fresh("add")
        self.line(f"{result} = []")
        self.line(f"{add} = {result}.append")
        self.line(f"for _ in range({count}):")
        self.deeper()
        if field.is_struct:
            value = self._struct(self.message.structs[field.type])
        else:
            value = self._sized(field.type, self.is_compact(field), False, field.name)
        self.line(f"{add}({value})")
        self.shallower()

    # The fewest bytes that an element can take: a forged count must not make more objects than bytes came.

    def _size_min(self, field: Field) -> int:
        if field.is_struct:
            return max(1, self._struct_size_min(self.message.structs[field.type]))
        if field.type in FIXED:
            return struct.calcsize(">" + FIXED[field.type])
        return self._length_size_min(field.type, self.is_compact(field))

    def _struct_size_min(self, schema: StructSchema) -> int:
        body, _, _ = self.fields_of(schema)
        return sum(self._field_size_min(field) for field in body) + self.is_flexible

    def _field_size_min(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.is_compact(field) else 4
        if field.is_struct and field.nullable.has(self.version):
            return 1
        if field.is_struct:
            return self._struct_size_min(self.message.structs[field.type])
        if field.type in FIXED:
            return struct.calcsize(">" + FIXED[field.type])
        return self._length_size_min(field.type, self.is_compact(field))

    @staticmethod
    def _length_size_min(kind: str, is_compact: bool) -> int:
        return 1 if is_compact else 2 if kind == "string" else 4
