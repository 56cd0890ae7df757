"""A reader of Avro bytes, compiled for one pair of schemas: straight-line Python that resolves as it reads.

What a writer's field becomes is decided here, once: the code for a record holds no schema. It refuses what a lenient
reader takes: an index of a union or an enum below zero, a boolean that is neither 0 nor 1, a count larger than the
bytes that are left. Nothing of a schema enters the code but numbers and quoted texts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tidelog.spark.payload.avro.members import member_value
from tidelog.spark.payload.avro.parsed import AvroSchema, Node, decimal_of
from tidelog.spark.payload.avro.resolution import RECORDS, check_fits, chosen, kind_of
from tidelog.spark.payload.avro.types import branches
from tidelog.spark.payload.errors import PayloadError, SchemaError

Read = Callable[[bytes], tuple[Any, int]]

# Python nests at most twenty blocks, and an array takes two.
_LOOPS_MAX = 8
_VARINT_SIZE_MAX = 10
_SIZES = {"float": 4, "double": 8}


def compile_reader(writer: AvroSchema, reader: AvroSchema) -> Read:
    """A function from a record's bytes to its value and where it ends."""
    return _Compiler(writer, reader).compile()


def more(data: bytes, position: int) -> tuple[int, int]:
    """The rest of a varint of more than one byte, whose first is behind `position`."""
    raw, shift = data[position - 1] & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
        if shift >= 7 * _VARINT_SIZE_MAX:
            raise PayloadError("a number is longer than 10 bytes")


def bad(what: str) -> PayloadError:
    return PayloadError(what)


class _Compiler:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader
        self._lines: list[str] = []
        self._functions: list[str] = []
        self._skips: dict[str, str] = {}
        self._names = 0
        self._loops = 0
        self._scope: dict[str, Any] = {
            "more": more,
            "bad": bad,
            "uuid": lambda raw: str(UUID(bytes=raw)),
            "decimal": decimal_of,
            "float4": struct.Struct("<f").unpack_from,
            "float8": struct.Struct("<d").unpack_from,
        }

    def compile(self) -> Read:
        value = self._read(self._writer.root, self._reader.root, 1)
        self._emit(1, f"return {value}, pos")
        head = ["def read(data):", "    pos = 0", "    end = len(data)"]
        try:
            exec("\n".join([*self._functions, *head, *self._lines]), self._scope)
        except SyntaxError:
            raise SchemaError("the Avro schema is nested too deeply to be read") from None
        read: Read = self._scope["read"]
        return read

    def _emit(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _new(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self._scope)}"
        self._scope[name] = value
        return name

    def _read(self, written: Node, read: Node, depth: int) -> str:
        """Emits code that reads `written` as `read`, and gives the expression for the value."""
        written, read = self._writer.look_up(written), self._reader.look_up(read)
        if isinstance(written, list):
            return self._union(written, read, depth)
        if isinstance(read, list):
            return self._into_union(written, read, depth)
        check_fits(written, read)
        kind = kind_of(written)
        if kind in RECORDS:
            return self._record(written, read, depth)
        if kind in ("array", "map"):
            return self._items(written, read, depth)
        if kind == "enum":
            return self._enum(written, read, depth)
        if kind in ("bytes", "string", "fixed"):
            return self._bytes(written, read, depth)
        return self._scalar(written, kind_of(read), depth)

    def _into_union(self, written: Node, read: Node, depth: int) -> str:
        if kind_of(written) == "null" and "null" in read:
            return "None"
        member, branch = chosen(self._reader, read, written)
        value = self._read(written, branch, depth)
        return value if len(branches(self._reader, read)) == 1 else f"{{{member!r}: {value}}}"

    def _union(self, written: Node, read: Node, depth: int) -> str:
        index, value = self._long(depth), self._new()
        for number, branch in enumerate(written):
            self._emit(depth, f"{'elif' if number else 'if'} {index} == {number}:")
            start, loops = len(self._lines), self._loops
            try:
                self._emit(depth + 1, f"{value} = {self._read(branch, read, depth + 1)}")
            except PayloadError as mismatch:
                # Only records that have this branch cannot be read.
                del self._lines[start:]
                self._loops = loops
                self._emit(depth + 1, f"raise bad({str(mismatch)!r})")
        self._emit(depth, "else:")
        self._emit(depth + 1, f"raise bad('a union of {len(written)} has no branch %d' % {index})")
        return value

    def _record(self, written: Node, read: Node, depth: int) -> str:
        wanted = {name: field for field in read["fields"] for name in (*field.get("aliases", ()), field["name"])}
        values: dict[str, str] = {}
        for field in written["fields"]:
            target = wanted.get(field["name"])
            if target is None or target["name"] in values:
                self._skip(field["type"], depth)
                continue
            value = self._new()
            self._emit(depth, f"{value} = {self._read(field['type'], target['type'], depth)}")
            values[target["name"]] = value
        for field in read["fields"]:
            if field["name"] not in values:
                if "default" not in field:
                    raise PayloadError(f"the writer has no field {field['name']!r}, and the reader no default for it")
                default = member_value(self._reader, field["type"], self._reader.default(field))
                values[field["name"]] = self._constant(default)
        return "{" + ", ".join(f"{name!r}: {value}" for name, value in values.items()) + "}"

    def _items(self, written: Node, read: Node, depth: int) -> str:
        array = kind_of(written) == "array"
        items = self._new()
        self._emit(depth, f"{items} = {'[]' if array else '{}'}")
        count = self._block(depth, skips_whole=False)
        self._emit(depth + 1, f"for _ in range({count}):")
        if array:
            self._emit(depth + 2, f"{items}.append({self._read(written['items'], read['items'], depth + 2)})")
        else:
            key = self._text(depth + 2)
            self._emit(depth + 2, f"{items}[{key}] = {self._read(written['values'], read['values'], depth + 2)}")
        self._loops -= 1
        return items

    def _block(self, depth: int, *, skips_whole: bool) -> str:
        """Begins the loop over the blocks of an array or a map, up to the items of one; gives their count."""
        self._loops += 1
        if self._loops > _LOOPS_MAX:
            raise SchemaError(f"arrays and maps are nested deeper than {_LOOPS_MAX}")
        self._emit(depth, "while True:")
        count = self._long(depth + 1)
        self._emit(depth + 1, f"if not {count}: break")
        self._emit(depth + 1, f"if {count} < 0:")
        self._emit(depth + 2, f"{count} = -{count}")
        size = self._long(depth + 2)
        if skips_whole:
            self._emit(depth + 2, f"if not 0 <= {size} <= end - pos: raise EOFError")
            self._emit(depth + 2, f"pos += {size}")
            self._emit(depth + 2, "continue")
        # An item takes a byte at least: arrays of null are refused.
        self._emit(depth + 1, f"if {count} > end - pos: raise EOFError")
        return count

    def _enum(self, written: Node, read: Node, depth: int) -> str:
        symbols = [symbol if symbol in read["symbols"] else read.get("default") for symbol in written["symbols"]]
        index, value = self._long(depth), self._new()
        self._emit(depth, f"if not 0 <= {index} < {len(symbols)}: raise bad('an enum has no symbol %d' % {index})")
        self._emit(depth, f"{value} = {self._constant(tuple(symbols))}[{index}]")
        if None in symbols:
            known = self._constant(tuple(written["symbols"]))
            self._emit(depth, f"if {value} is None: raise bad('the reader has no symbol %r' % {known}[{index}])")
        return value

    def _bytes(self, written: Node, read: Node, depth: int) -> str:
        logical = written.get("logicalType") if isinstance(written, dict) else None
        if kind_of(written) == "fixed":
            value = self._slice(str(int(written["size"])), depth)
        elif kind_of(read) == "string":
            return self._text(depth)
        else:
            value = self._slice(self._long(depth), depth)
        if logical == "decimal":
            return f"decimal({value}, {int(written.get('scale', 0))})"
        return f"uuid({value})" if logical == "uuid" and kind_of(written) == "fixed" else value

    def _scalar(self, written: Node, read: str, depth: int) -> str:
        kind = kind_of(written)
        if kind == "null":
            return "None"
        value = self._new()
        if kind == "boolean":
            self._emit(depth, f"{value} = data[pos]; pos += 1")
            self._emit(depth, f"if {value} > 1: raise bad('a boolean is %d' % {value})")
            return f"{value} == 1"
        if kind in _SIZES:
            self._emit(depth, f"if end - pos < {_SIZES[kind]}: raise EOFError")
            self._emit(depth, f"{value} = float{_SIZES[kind]}(data, pos)[0]; pos += {_SIZES[kind]}")
            return value
        value = self._long(depth)
        logical = str(written.get("logicalType", "")) if isinstance(written, dict) and kind == "long" else ""
        if logical.endswith("timestamp-millis"):
            return f"{value} * 1000"
        if logical.endswith("timestamp-nanos"):
            return f"{value} // 1000"
        return f"float({value})" if read in _SIZES else value

    def _long(self, depth: int) -> str:
        value = self._new()
        self._emit(depth, f"{value} = data[pos]; pos += 1")
        self._emit(depth, f"if {value} > 127: {value}, pos = more(data, pos)")
        self._emit(depth, f"{value} = ({value} >> 1) ^ -({value} & 1)")
        return value

    def _slice(self, size: str, depth: int) -> str:
        value = self._new()
        self._emit(depth, f"if not 0 <= {size} <= end - pos: raise EOFError")
        self._emit(depth, f"{value} = data[pos:pos + {size}]; pos += {size}")
        return value

    def _text(self, depth: int) -> str:
        value = self._slice(self._long(depth), depth)
        self._emit(depth, f"{value} = {value}.decode()")
        return value

    def _skip(self, written: Node, depth: int) -> None:
        written = self._writer.look_up(written)
        if isinstance(written, list):
            index = self._long(depth)
            for number, branch in enumerate(written):
                self._emit(depth, f"{'elif' if number else 'if'} {index} == {number}:")
                self._emit(depth + 1, "pass")
                self._skip(branch, depth + 1)
            self._emit(depth, f"else: raise bad('a union of {len(written)} has no branch %d' % {index})")
            return
        kind = kind_of(written)
        if kind in RECORDS:
            self._emit(depth, f"pos = {self._skip_function(written)}(data, pos, end)")
        elif kind in ("array", "map"):
            count = self._block(depth, skips_whole=True)
            self._emit(depth + 1, f"for _ in range({count}):")
            if kind == "map":
                self._slice(self._long(depth + 2), depth + 2)
            self._skip(written["items" if kind == "array" else "values"], depth + 2)
            self._loops -= 1
        elif kind in ("bytes", "string", "fixed"):
            self._slice(str(int(written["size"])) if kind == "fixed" else self._long(depth), depth)
        elif kind != "null":
            self._scalar(kind if kind != "enum" else "long", kind, depth)

    def _skip_function(self, written: Node) -> str:
        """A function per record that is passed over: it may hold itself, which only a record that is read may not."""
        name = written["name"]
        if name not in self._skips:
            self._skips[name] = f"skip{len(self._skips)}"
            outer, self._lines = self._lines, []
            loops, self._loops = self._loops, 0
            for field in written["fields"]:
                self._skip(field["type"], 1)
            self._functions += [f"def {self._skips[name]}(data, pos, end):", *self._lines, "    return pos"]
            self._lines, self._loops = outer, loops
        return self._skips[name]
