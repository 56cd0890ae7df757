"""What readers and writers have in common: lines of Python source, the wire form of each type, primitives they call."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.schema import Field, MessageSchema, StructSchema
from tidelog.protocol.uuids import ZERO_UUID

# Types of a fixed size, in struct's letters. A run of them is one call.
FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
STRING_BYTES_MAX = 0x7FFF


class UnsupportedVersion(ValueError):
    """The message cannot be written in that version: the version is unknown, or it lacks a field that was set."""


class Source:
    """A function under construction: lines at an indentation, fresh local names, and the constants that it needs."""

    def __init__(self, message: MessageSchema, version: int, shape: type[Any]) -> None:
        self.message = message
        self.version = version
        self.is_flexible = message.flexible.has(version)
        self.lines: list[str] = []
        self.indent = "    "
        self.names: dict[str, Any] = {}
        self._shape = shape
        self._fresh = 0

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def deeper(self) -> None:
        self.indent += "    "

    def shallower(self) -> None:
        self.indent = self.indent[:-4]

    def fresh(self, hint: str) -> str:
        self._fresh += 1
        return f"{hint}{self._fresh}"

    def constant(self, value: Any, hint: str) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{hint}{len(self.names)}"
        self.names[name] = value
        return name

    def shape_of(self, schema: StructSchema) -> type[Any]:
        if schema is self.message.root:
            return self._shape
        shape: type[Any] = getattr(self._shape, schema.name)
        return shape

    def fields_of(self, schema: StructSchema) -> tuple[list[Field], list[Field], list[Field]]:
        """The fields in the body, those in the tag section by tag, and those that this version lacks."""
        body, tagged, lacking = [], [], []
        for field in schema.fields:
            if field.tagged.has(self.version):
                tagged.append(field)
            elif field.versions.has(self.version):
                body.append(field)
            else:
                lacking.append(field)
        return body, sorted(tagged, key=lambda field: field.tag), lacking

    def is_compact(self, field: Field) -> bool:
        return self.is_flexible and not field.is_never_flexible

    def compile(self, head: str, name: str, primitives: dict[str, Any]) -> Callable[..., Any]:
        text = "\n".join([head, *self.lines])
        names = {**primitives, **self.names}
        exec(compile(text, f"<{self.message.name} v{self.version} {name}>", "exec"), names)
        function: Callable[..., Any] = names[name]
        return function


def default_source(field: Field) -> str:
    """The default of a field that is no struct, as Python source."""
    if field.is_null_by_default:
        return "None"
    if field.is_array:
        return "[]"
    if field.default is not None:
        return field.default.capitalize() if field.type == "bool" else field.default
    if field.type == "uuid":
        return repr(ZERO_UUID)
    return {"bool": "False", "string": "''", "bytes": "b''", "float64": "0.0"}.get(field.type, "0")


def read_uvarint(buf: bytes | memoryview, p: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, over 127, was read just before p."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                refuse(f"a varint of {value} is over 31 bits")
            return value, p
    raise ProtocolError("a varint of more than five bytes")


def refuse(what: str) -> NoReturn:
    raise ProtocolError(what)


def skip_tags(buf: bytes | memoryview, p: int, first: int, end: int) -> int:
    """Past a tag section, of which the first byte of the count was read: a newer peer may send what we do not know."""
    count = first
    if count > 127:
        count, p = read_uvarint(buf, p, count)
    for _ in range(count):
        _, size, p = read_tag(buf, p, end)
        p += size
    return p


def read_tag(buf: bytes | memoryview, p: int, end: int) -> tuple[int, int, int]:
    tag = buf[p]
    p += 1
    if tag > 127:
        tag, p = read_uvarint(buf, p, tag)
    size = buf[p]
    p += 1
    if size > 127:
        size, p = read_uvarint(buf, p, size)
    if size > end - p:
        refuse(f"tag {tag} claims {size} bytes and {end - p} are left")
    return tag, size, p


def write_uvarint(value: int) -> bytes:
    if value > 0x7FFFFFFF:
        raise ValueError(f"a length of {value} does not fit into 31 bits")
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class ArrayPackers(dict[int, Callable[..., bytes]]):
    """Packers of n numbers of one type. Short ones are kept, long ones (a topic's 10,000 partitions) are made anew."""

    def __init__(self, letter: str) -> None:
        self._letter = letter

    def __missing__(self, count: int) -> Callable[..., bytes]:
        packer = struct.Struct(f">{count}{self._letter}").pack
        if count <= 64:
            self[count] = packer
        return packer
