""".proto text to a FileDescriptorProto, for messages: what decides how bytes are read and how columns are called.

Read are proto2 and proto3: packages, imports, messages and enums at any depth, oneofs, maps, optional, defaults and
packed. Skipped are services, extensions and options that change no byte. Refused are editions and groups. Names of
types are left as they are written: the descriptor pool resolves them by Protobuf's own rules, and refuses those it
does not find.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from tidelog.spark.payload.protobuf.stream import Stream

_NUMBERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_SCALARS = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (*_NUMBERS, "double", "float", "bool", "string", "bytes")
}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_DEPTH_MAX = 32


def parse(text: str, name: str) -> FileDescriptorProto:
    file = FileDescriptorProto(name=name, syntax="proto2")
    stream = Stream(text)
    while stream.next.kind != "end":
        _statement(stream, file)
    if file.syntax == "proto2":
        file.ClearField("syntax")
    return file


def _statement(stream: Stream, file: FileDescriptorProto) -> None:
    match stream.next.text:
        case "syntax":
            stream.take()
            stream.expect("=")
            file.syntax = stream.text()
            if file.syntax not in ("proto2", "proto3"):
                stream.fail(f"syntax {file.syntax!r} is not read, only proto2 and proto3")
            stream.expect(";")
        case "edition":
            stream.fail("editions are not read, only proto2 and proto3")
        case "package":
            stream.take()
            file.package = stream.type_name()
            stream.expect(";")
        case "import":
            stream.take()
            public = stream.skips("public")
            if not public:
                stream.skips("weak")
            if public:
                file.public_dependency.append(len(file.dependency))
            file.dependency.append(stream.text())
            stream.expect(";")
        case "message":
            _message(stream, file.message_type.add(), file.syntax == "proto3", 1)
        case "enum":
            _enum(stream, file.enum_type.add())
        case "option" | "service" | "extend":
            stream.take()
            stream.skip_statement()
        case ";":
            stream.take()
        case other:
            stream.fail(f"expected message, enum, import, option, package, service, syntax or extend, found {other!r}")


def _message(stream: Stream, message: DescriptorProto, proto3: bool, depth: int) -> None:
    if depth > _DEPTH_MAX:
        stream.fail(f"messages are nested deeper than {_DEPTH_MAX}")
    stream.expect("message")
    message.name = stream.name()
    stream.expect("{")
    while not stream.skips("}"):
        first, second = stream.next.text, stream.after
        # message, enum, oneof and the like may be names of types too; a name must follow where they are what they say.
        if first == "message" and second.kind == "name":
            _message(stream, message.nested_type.add(), proto3, depth + 1)
        elif first == "enum" and second.kind == "name":
            _enum(stream, message.enum_type.add())
        elif first == "oneof" and second.kind == "name":
            _oneof(stream, message)
        elif first in ("option", "reserved", "extensions", "extend"):
            stream.take()
            stream.skip_statement()
        elif first == "map" and second.text == "<":
            _map(stream, message)
        elif not stream.skips(";"):
            _field(stream, message, proto3)
    _name_optional_fields(message)


def _field(stream: Stream, message: DescriptorProto, proto3: bool) -> None:
    label = stream.next.text if stream.next.text in _LABELS and stream.after.text != "=" else None
    if label is not None:
        stream.take()
    elif not proto3:
        stream.fail(f"a field of proto2 begins with optional, required or repeated, not with {stream.next.text!r}")
    field = message.field.add(label=_LABELS[label or "optional"])
    _typed(stream, field)
    if proto3 and label == "required":
        stream.fail("proto3 has no required fields")
    if proto3 and label == "optional":
        field.proto3_optional = True


def _typed(stream: Stream, field: FieldDescriptorProto) -> None:
    if stream.next.text == "group":
        stream.fail("groups are not read")
    _set_type(field, stream.type_name())
    field.name = stream.name()
    stream.expect("=")
    field.number = stream.number()
    if stream.skips("["):
        _field_options(stream, field)
    stream.expect(";")


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        # Whether it is a message or an enum is for the pool to find out.
        field.type_name = name


def _field_options(stream: Stream, field: FieldDescriptorProto) -> None:
    while True:
        if stream.next.text == "(":
            stream.skip_block()
            name = ""
            while stream.skips("."):
                stream.skip_block() if stream.next.text == "(" else stream.name()
        else:
            name = stream.type_name()
        stream.expect("=")
        value = stream.constant()
        if name == "packed":
            field.options.packed = value == "true"
        elif name == "default":
            field.default_value = value
        elif name == "json_name":
            field.json_name = value
        if stream.skips("]"):
            return
        stream.expect(",")


def _oneof(stream: Stream, message: DescriptorProto) -> None:
    stream.expect("oneof")
    index = len(message.oneof_decl)
    message.oneof_decl.add(name=stream.name())
    stream.expect("{")
    while not stream.skips("}"):
        if stream.next.text == "option":
            stream.skip_statement()
        elif not stream.skips(";"):
            field = message.field.add(label=_LABELS["optional"], oneof_index=index)
            _typed(stream, field)


def _map(stream: Stream, message: DescriptorProto) -> None:
    stream.expect("map")
    stream.expect("<")
    key = stream.name()
    stream.expect(",")
    value = stream.type_name()
    stream.expect(">")
    field = message.field.add(label=_LABELS["repeated"], name=stream.name())
    stream.expect("=")
    field.number = stream.number()
    if stream.skips("["):
        _field_options(stream, field)
    stream.expect(";")
    entry = message.nested_type.add(name=_camel(field.name) + "Entry")
    entry.options.map_entry = True
    _set_type(entry.field.add(name="key", number=1, label=_LABELS["optional"]), key)
    _set_type(entry.field.add(name="value", number=2, label=_LABELS["optional"]), value)
    field.type = FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = entry.name


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _name_optional_fields(message: DescriptorProto) -> None:
    """Each optional field of proto3 is alone in a oneof of its own, and these stand behind all others."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _enum(stream: Stream, enum: EnumDescriptorProto) -> None:
    stream.expect("enum")
    enum.name = stream.name()
    stream.expect("{")
    while not stream.skips("}"):
        if stream.next.text == "option" and stream.after.text != "=":
            stream.take()
            name = stream.type_name() if stream.next.kind == "name" else ""
            if name == "allow_alias":
                stream.expect("=")
                enum.options.allow_alias = stream.constant() == "true"
                stream.expect(";")
            else:
                stream.skip_statement()
        elif stream.next.text == "reserved" and stream.after.text != "=":
            stream.skip_statement()
        elif not stream.skips(";"):
            value = enum.value.add(name=stream.name())
            stream.expect("=")
            value.number = stream.number()
            if stream.next.text == "[":
                stream.skip_block()
            stream.expect(";")
