"""Writes and compiles the writer of one message in one version: straight-line Python, nested structs inlined.

The writer is `write(message) -> list of byte strings`; records stay the objects that the caller put in, uncopied. A
value that does not fit its field surfaces as struct.error, TypeError or AttributeError; the facade makes that a
ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from tidelog.protocol.schema import Field, MessageSchema, StructSchema
from tidelog.protocol.source import (
    FIXED,
    STRING_BYTES_MAX,
    ArrayPackers,
    Source,
    UnsupportedVersion,
    default_source,
    write_uvarint,
)

_ERROR_MESSAGE_BYTES = 1024


def _refuse_value(what: str) -> NoReturn:
    raise ValueError(what)


def _clipped(text: bytes) -> bytes:
    """A sentence for people may quote what a peer sent, and that may be long."""
    return text[: _ERROR_MESSAGE_BYTES - 3].decode(errors="ignore").encode() + b"..."


def _refuse_version(what: str) -> NoReturn:
    raise UnsupportedVersion(what)


_PRIMITIVES: dict[str, Any] = {
    "uvarint": write_uvarint,
    "bad": _refuse_value,
    "clipped": _clipped,
    "unsupported": _refuse_version,
    "join": b"".join,
    **{f"pack_{letter.replace('?', 'o')}": ArrayPackers(letter) for letter in FIXED.values() if letter != "16s"},
}


def compile_writer(message: MessageSchema, version: int, shape: type[Any]) -> Callable[..., Any]:
    return _Writer(message, version, shape).build()


class _Writer(Source):
    def __init__(self, message: MessageSchema, version: int, shape: type[Any]) -> None:
        super().__init__(message, version, shape)
        self._run: list[tuple[str, str]] = []
        self._put = "w"

    def build(self) -> Callable[..., Any]:
        self.line("out = []")
        self.line("w = out.append")
        self._struct(self.message.root, "m")
        self._flush()
        self.line("return out")
        return self.compile("def write(m):", "write", _PRIMITIVES)

    # Runs: fixed-size values, short lengths and empty tag sections are packed by one call.

    def _fixed(self, letter: str, expression: str) -> None:
        self._run.append((letter, expression))

    def _packed(self, run: list[tuple[str, str]]) -> str:
        letters = "".join(letter for letter, _ in run)
        if letters.strip("x") == "":
            return repr(bytes(len(letters)))
        name = "P_" + letters.replace("?", "o")
        if name not in self.names:
            self.names[name] = struct.Struct(">" + letters).pack
        return f"{name}({', '.join(expression for _, expression in run if expression)})"

    def _flush(self) -> None:
        if self._run:
            self.line(f"{self._put}({self._packed(self._run)})")
            self._run = []

    def _flush_with_uvarint(self, name: str) -> None:
        run, self._run = self._run, []
        self.line(f"if {name} < 128:")
        self.line(f"    {self._put}({self._packed([*run, ('B', name)])})")
        self.line("else:")
        if run:
            self.line(f"    {self._put}({self._packed(run)})")
        self.line(f"    {self._put}(uvarint({name}))")

    # Structs

    def _struct(self, schema: StructSchema, owner: str) -> None:
        body, tagged, lacking = self.fields_of(schema)
        for field in lacking:
            if not field.is_ignorable:
                self._refuse_if_set(schema, field, owner)
        for field in body:
            self._field(field, f"{owner}.{field.name}")
        if self.is_flexible and tagged:
            self._tags(tagged, owner)
        elif self.is_flexible:
            self._fixed("x", "")

    def _refuse_if_set(self, schema: StructSchema, field: Field, owner: str) -> None:
        value = self.fresh("v")
        self.line(f"{value} = {owner}.{field.name}")
        self.line(f"if {self._is_set(field, value)}:")
        what = f"{schema.name}.{field.name} is set, and version {self.version} of {self.message.name} lacks it"
        self.line(f"    unsupported({what!r})")

    def _is_set(self, field: Field, value: str) -> str:
        """Whether the value differs from the field's default, as Python source."""
        if field.is_null_by_default:
            return f"{value} is not None"
        if field.is_array or field.type == "bytes":
            return f"{value} is None or len({value})"
        if field.is_struct:
            shape = self.shape_of(self.message.structs[field.type])
            name = f"D_{field.type}"
            self.names.setdefault(name, shape())
            return f"{value} != {name}"
        return f"{value} != {default_source(field)}"

    def _tags(self, fields: list[Field], owner: str) -> None:
        self._flush()
        tags, outer = self.fresh("tags"), self._put
        self.line(f"{tags} = []")
        for field in fields:
            value, parts = self.fresh("v"), self.fresh("parts")
            self.line(f"{value} = {owner}.{field.name}")
            self.line(f"if {self._is_set(field, value)}:")
            self.deeper()
            self.line(f"{parts} = []")
            self._put = f"{parts}.append"
            self._field(field, value)
            self._flush()
            self.line(f"{parts} = join({parts})")
            self.line(f"{tags} += {write_uvarint(field.tag)!r}, uvarint(len({parts})), {parts}")
            self.shallower()
        self._put = outer
        self.line(f"{outer}(uvarint(len({tags}) // 3))")
        self.line(f"if {tags}:")
        self.line(f"    {outer}(join({tags}))")

    # Fields

    def _field(self, field: Field, value: str) -> None:
        if field.is_array:
            self._array(field, value)
        elif field.is_struct:
            self._struct_field(field, value)
        elif field.type == "uuid":
            name = self.fresh("v")
            self.line(f"{name} = {value}")
            # struct would pad or cut it without a word.
            self.line(f"if len({name}) != 16:")
            self.line(f"    bad('{field.name} must have 16 bytes')")
            self._fixed("16s", name)
        elif field.type in FIXED:
            self._fixed(FIXED[field.type], value)
        else:
            self._sized(field, value, field.nullable.has(self.version))

    def _struct_field(self, field: Field, value: str) -> None:
        schema = self.message.structs[field.type]
        name = self.fresh("s")
        self.line(f"{name} = {value}")
        if not field.nullable.has(self.version):
            self._struct(schema, name)
            return
        run, self._run = self._run, []
        # Within a tag Kafka marks a null struct by a varint 0, outside by a byte -1; 1 is "present" in both.
        null = "0" if field.tagged.has(self.version) else "-1"
        self.line(f"if {name} is None:")
        self.line(f"    {self._put}({self._packed([*run, ('b', null)])})")
        self.line("else:")
        self.deeper()
        self._run = [*run, ("b", "1")]
        self._struct(schema, name)
        self._flush()
        self.shallower()

    def _length(self, letter: str, is_compact: bool, length: str) -> None:
        if is_compact:
            self._flush_with_uvarint(length)
        else:
            self._fixed(letter, length)

    def _sized(self, field: Field, value: str, is_nullable: bool) -> None:
        is_compact = self.is_compact(field)
        data, length = self.fresh("v"), self.fresh("n")
        self.line(f"{data} = {value}")
        if is_nullable:
            self.line(f"if {data} is None:")
            self.line(f"    {data} = b''")
            self.line(f"    {length} = {0 if is_compact else -1}")
            self.line("else:")
            self.deeper()
        if field.type == "string":
            self.line(f"{data} = {data}.encode()")
        self.line(f"{length} = len({data}){' + 1' if is_compact else ''}")
        if field.type == "string":
            self.line(f"if {length} > {STRING_BYTES_MAX + is_compact}:")
            if field.name == "error_message":
                self.line(f"    {data} = clipped({data})")
                self.line(f"    {length} = len({data}){' + 1' if is_compact else ''}")
            else:
                self.line(f"    bad(f'{field.name} is longer than {STRING_BYTES_MAX} bytes')")
        if is_nullable:
            self.shallower()
        self._length("h" if field.type == "string" else "i", is_compact, length)
        self._flush()
        self.line(f"{self._put}({data})")

    # Arrays

    def _array(self, field: Field, value: str) -> None:
        is_compact = self.is_compact(field)
        items, count = self.fresh("v"), self.fresh("n")
        self.line(f"{items} = {value}")
        if field.nullable.has(self.version):
            self.line(f"if {items} is None:")
            self.line(f"    {items} = ()")
            self.line(f"    {count} = {0 if is_compact else -1}")
            self.line("else:")
            self.line(f"    {count} = len({items}){' + 1' if is_compact else ''}")
        else:
            self.line(f"{count} = len({items}){' + 1' if is_compact else ''}")
        self._length("i", is_compact, count)
        self._flush()
        if field.type == "uuid":
            self._uuids(field, items)
        elif field.type in FIXED:
            letter = FIXED[field.type].replace("?", "o")
            self.line(f"if {items}:")
            self.line(f"    {self._put}(pack_{letter}[len({items})](*{items}))")
        else:
            self._elements(field, items)

    def _uuids(self, field: Field, items: str) -> None:
        self.line(f"for u in {items}:")
        self.line("    if len(u) != 16:")
        self.line(f"        bad('{field.name} must have 16 bytes each')")
        self.line(f"{self._put}(join({items}))")

    def _elements(self, field: Field, items: str) -> None:
        element = self.fresh("e")
        self.line(f"for {element} in {items}:")
        self.deeper()
        if field.is_struct:
            before = len(self.lines)
            self._struct(self.message.structs[field.type], element)
            self._flush()
            if len(self.lines) == before:
                self.line("pass")
        else:
            self._sized(field, element, False)
        self.shallower()
