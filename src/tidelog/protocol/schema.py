"""The facts of a message, read from schemas/*.txt: one line per field. Knows nothing of bytes.

    MetadataRequest request 3 versions=0-13 flexible=9+      a message: name, kind, api key, versions
      topics []MetadataRequestTopic 0+ null=1+               its fields, two spaces in
     MetadataRequestTopic 0+                                 a struct of the message, one space in
      name string 0+ null=10+

Attributes of a field: `null=` versions in which it may be null, `tag=N@` versions in which it is tagged, `default=`,
`ignorable` (silently left out of versions that lack it), `flexible=none` (keeps the old string format for ever).
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from msgspec import Struct

SCHEMAS = os.path.join(os.path.dirname(__file__), "schemas")
ANY_LATER = 32767


class Versions(NamedTuple):
    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), ANY_LATER)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def has(self, version: int) -> bool:
        return self.low <= version <= self.high


NO_VERSIONS = Versions(0, -1)


class Field(Struct, frozen=True):
    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: str | None
    is_ignorable: bool
    is_never_flexible: bool

    @property
    def is_struct(self) -> bool:
        return self.type[0].isupper()

    @property
    def is_null_by_default(self) -> bool:
        return self.default == "null" or (self.type == "records" and not self.is_array)


class StructSchema(Struct, frozen=True):
    name: str
    versions: Versions
    fields: tuple[Field, ...]


class MessageSchema(Struct, frozen=True):
    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    root: StructSchema
    structs: dict[str, StructSchema]


@cache
def load_message(module: str, name: str) -> MessageSchema:
    """The schema of one message; only its own lines of the module's file are parsed."""
    text = "\n" + _read(module)
    start = text.find(f"\n{name} ")
    if start < 0:
        raise LookupError(f"schemas/{module}.txt has no message {name}")
    lines = text[start + 1 :].split("\n")
    end = next(i for i, line in enumerate(lines) if i and not line.startswith(" "))
    return _parse_message(lines[:end])


def message_names(module: str) -> list[str]:
    return [line.split(" ", 1)[0] for line in _read(module).splitlines() if not line.startswith(" ")]


def _read(module: str) -> str:
    with open(os.path.join(SCHEMAS, f"{module}.txt"), encoding="ascii") as file:
        return file.read()


def _parse_message(lines: list[str]) -> MessageSchema:
    name, kind, key, *rest = lines[0].split(" ")
    facts = dict(item.split("=") for item in rest)
    heads: list[tuple[str, Versions]] = [(name, Versions.parse(facts["versions"]))]
    fields: list[list[Field]] = [[]]
    for line in lines[1:]:
        if line.startswith("  "):
            fields[-1].append(_parse_field(line[2:]))
        else:
            struct_name, versions = line[1:].split(" ")
            heads.append((struct_name, Versions.parse(versions)))
            fields.append([])
    root, *inner = (StructSchema(*head, tuple(own)) for head, own in zip(heads, fields, strict=True))
    return MessageSchema(
        name=name,
        kind=kind,
        api_key=None if key == "-" else int(key),
        versions=root.versions,
        flexible=Versions.parse(facts["flexible"]),
        root=root,
        structs={struct.name: struct for struct in inner},
    )


def _parse_field(line: str) -> Field:
    name, type_name, versions, *attributes = line.split(" ")
    facts = dict(item.partition("=")[::2] for item in attributes)
    tag, _, tagged = facts.get("tag", "-1@none").partition("@")
    return Field(
        name=name,
        type=type_name.removeprefix("[]"),
        is_array=type_name.startswith("[]"),
        versions=Versions.parse(versions),
        nullable=Versions.parse(facts.get("null", "none")),
        tag=int(tag),
        tagged=Versions.parse(tagged),
        default=facts.get("default"),
        is_ignorable="ignorable" in facts,
        is_never_flexible="flexible" in facts,
    )
