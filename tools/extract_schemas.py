"""Turns the message schemas in Apache Kafka's published jars into Tidelog's own facts and shapes.

Run it by hand when a newer Kafka is adopted; what it writes is committed:
  src/tidelog/protocol/schemas/*.txt   a line per field: name, type, versions, tags, nullability, default
  src/tidelog/protocol/messages/*.py   typed shapes, one for all versions of a message
  src/tidelog/protocol/apis.py         API keys with their version ranges, listeners and first flexible version
No texts of the schemas are kept. Run it as `python -m tools.extract_schemas`; the jars come through Maven.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.apache import VERSION as RELEASED
from tools.apache import apache_libs, newest_clients_libs, why_not

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = ROOT / "src" / "tidelog" / "protocol"
NEWEST = "4.4.0"
JARS = ("clients", "metadata", "raft", "storage", "group-coordinator", "transaction-coordinator", "share-coordinator")
RECORD_MODULES = {
    "metadata": "records_metadata",
    "raft": "records_raft",
    "storage": "records_storage",
    "group-coordinator": "records_group",
    "transaction-coordinator": "records_transaction",
    "share-coordinator": "records_share",
}
CLIENT_DATA_MODULES = {
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ConsumerProtocolAssignment": "consumer_protocol",
    "RequestHeader": "headers",
    "ResponseHeader": "headers",
    "DefaultPrincipalData": "principal",
}
NEVER = 32767
SPELLINGS = {"Enable2Pc": "enable_2pc"}
PYTHON_TYPES = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | memoryview",
    "uuid": "bytes",
    "float64": "float",
}
ZERO_DEFAULTS = {
    "bool": "False",
    "string": '""',
    "bytes": 'b""',
    "records": "None",
    "uuid": "ZERO_UUID",
    "float64": "0.0",
}


@dataclass
class Field:
    name: str
    type: str
    versions: str
    default: str | None
    attributes: list[str]

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_nullable(self) -> bool:
        return any(attribute.startswith("null=") for attribute in self.attributes)

    def fact(self) -> str:
        return " ".join(["  " + self.name, self.type, self.versions, *self.attributes])


@dataclass
class Structure:
    name: str
    versions: str
    fields: list[Field]


@dataclass
class Message:
    name: str
    kind: str
    key: int | None
    versions: tuple[int, int]
    flexible: str
    listeners: list[str]
    is_unstable: bool
    module: str
    fields: list[Field]
    structures: list[Structure]
    released: tuple[int, int] | None = None
    released_is_unstable: bool = False

    @property
    def flexible_from(self) -> int:
        return NEVER if self.flexible == "none" else int(self.flexible.rstrip("+"))

    @property
    def stable_versions(self) -> tuple[int, int] | None:
        """What Apache Kafka's released broker advertises; None where only the newer clients know the message."""
        if self.released is None:
            return None
        low, high = self.released
        return low, high - 1 if self.released_is_unstable else high

    def facts(self) -> str:
        head = [self.name, self.kind, "-" if self.key is None else str(self.key)]
        head += [f"versions={self.versions[0]}-{self.versions[1]}", f"flexible={self.flexible}"]
        lines = [" ".join(head), *(each.fact() for each in self.fields)]
        for structure in self.structures:
            lines.append(f" {structure.name} {structure.versions}")
            lines += (each.fact() for each in structure.fields)
        return "\n".join(lines) + "\n"


def snake_case(name: str) -> str:
    if name in SPELLINGS:
        return SPELLINGS[name]
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def without_comments(text: str) -> str:
    kept = (line for line in text.splitlines() if not line.lstrip().startswith("//"))
    return "\n".join(re.sub(r"(?<=[\]},])\s*//.*$", "", line) for line in kept)


def read_jar(jar: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(jar) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".json") and "/message" in "/" + name)
        names += sorted(name for name in archive.namelist() if name.startswith("common/metadata/"))
        schemas = [
            json.loads(without_comments(archive.read(name).decode())) for name in names if name.endswith(".json")
        ]
    return [schema for schema in schemas if schema["validVersions"] != "none"]


def version_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def default_fact(raw: dict[str, Any]) -> str | None:
    # A JSON null is not the string "null": Kafka's generator then falls back to the type's own default.
    value = raw.get("default")
    if value is None or value == "":
        return None
    text = str(value).lower()
    if raw["type"].startswith(("int", "uint")):
        return str(int(text, 0))
    return text


def read_field(raw: dict[str, Any], structures: list[Structure]) -> Field:
    versions = raw.get("versions") or raw["taggedVersions"]
    attributes = []
    if raw.get("nullableVersions", "none") != "none":
        attributes.append(f"null={raw['nullableVersions']}")
    if "tag" in raw:
        attributes.append(f"tag={raw['tag']}@{raw['taggedVersions']}")
    default = default_fact(raw)
    if default is not None:
        attributes.append(f"default={default}")
    if str(raw.get("ignorable", "false")).lower() == "true":
        attributes.append("ignorable")
    if "flexibleVersions" in raw:
        attributes.append(f"flexible={raw['flexibleVersions']}")
    if "fields" in raw:
        structures.append(read_structure(raw["type"].removeprefix("[]"), versions, raw["fields"], structures))
    return Field(snake_case(raw["name"]), raw["type"], versions, default, attributes)


def read_structure(name: str, versions: str, fields: list[dict[str, Any]], structures: list[Structure]) -> Structure:
    inner: list[Structure] = []
    structure = Structure(name, versions, [read_field(each, inner) for each in fields])
    structures.extend(inner)
    return structure


def read_message(raw: dict[str, Any], module: str) -> Message:
    structures: list[Structure] = []
    for common in raw.get("commonStructs", []):
        structures.append(read_structure(common["name"], common["versions"], common["fields"], structures))
    fields = [read_field(each, structures) for each in raw["fields"]]
    return Message(
        name=raw["name"],
        kind=raw["type"],
        key=raw.get("apiKey"),
        versions=version_range(raw["validVersions"]),
        flexible=raw["flexibleVersions"],
        listeners=raw.get("listeners", []),
        is_unstable=bool(raw.get("latestVersionUnstable")),
        module=module,
        fields=fields,
        structures=sorted(structures, key=lambda structure: structure.name),
    )


def module_of(raw: dict[str, Any], jar: str) -> str:
    if raw["type"] in ("request", "response"):
        return snake_case(re.sub(r"(Request|Response)$", "", raw["name"]))
    if jar == "clients":
        return CLIENT_DATA_MODULES.get(raw["name"], "records_control")
    return RECORD_MODULES[jar]


def read_all(released: Path, newest: Path) -> list[Message]:
    messages = []
    for jar in JARS:
        current = {raw["name"]: raw for raw in read_jar(released / f"kafka-{jar}-{RELEASED}.jar")}
        newer = {raw["name"]: raw for raw in read_jar(newest / f"kafka-{jar}-{NEWEST}.jar")} if jar == "clients" else {}
        for name, raw in sorted({**current, **newer}.items()):
            message = read_message(raw, module_of(raw, jar))
            if name in current:
                message.released = version_range(current[name]["validVersions"])
                message.released_is_unstable = bool(current[name].get("latestVersionUnstable"))
            messages.append(message)
    return messages


# --- shapes ---------------------------------------------------------------------------------------------------------


def annotation(message: Message, each: Field) -> str:
    if each.element[0].isupper():
        text = f"{message.name}.{each.element}"
    else:
        text = PYTHON_TYPES.get(each.element, "int")
    if each.is_array:
        text = f"list[{text}]"
    # Kafka's own default of a records field is null, nullable on the wire or not.
    return f"{text} | None" if each.is_nullable or each.element == "records" else text


def default_value(message: Message, each: Field) -> str:
    if each.default == "null":
        return "None"
    if each.is_array:
        return "[]"
    if each.element[0].isupper():
        return f"field(default_factory=lambda: {message.name}.{each.element}())"
    if each.default is None:
        return ZERO_DEFAULTS.get(each.element, "0")
    if each.element == "bool":
        return each.default.capitalize()
    return each.default


def shape_lines(message: Message, fields: list[Field], indent: str) -> list[str]:
    return [f"{indent}{each.name}: {annotation(message, each)} = {default_value(message, each)}" for each in fields]


def shape(message: Message) -> str:
    lines = [f"class {message.name}(Struct, kw_only=True, gc=False):"]
    if message.key is not None:
        lines.append(f"    API_KEY: ClassVar[int] = {message.key}")
    low, high = message.stable_versions or message.versions
    lines.append(f"    MIN_VERSION: ClassVar[int] = {low}")
    lines.append(f"    MAX_VERSION: ClassVar[int] = {high}")
    lines.append(f"    FLEXIBLE_FROM: ClassVar[int] = {message.flexible_from}")
    for structure in message.structures:
        lines += ["", f"    class {structure.name}(Struct, kw_only=True, gc=False):"]
        lines += shape_lines(message, structure.fields, "        ") or ["        pass"]
    lines += ["", *shape_lines(message, message.fields, "    ")]
    return "\n".join(lines)


def module_docstring(messages: list[Message]) -> str:
    names = ", ".join(message.name for message in messages)
    if messages[0].kind in ("request", "response"):
        low, high = messages[0].versions
        names = f"{messages[0].name.removesuffix('Request')} ({messages[0].key}), versions {low}-{high}"
    elif len(messages) > 3:
        names = f"{len(messages)} stored shapes"
    return f'"""{names}. Generated by tools/extract_schemas.py: do not edit."""'


def shape_module(messages: list[Message]) -> str:
    body = "\n\n\n".join(shape(message) for message in messages)
    msgspec_names = "Struct, field" if "field(default_factory" in body else "Struct"
    lines = [
        module_docstring(messages),
        "",
        "from __future__ import annotations",
        "",
        "from typing import ClassVar",
        "",
    ]
    lines.append(f"from msgspec import {msgspec_names}")
    if "ZERO_UUID" in body:
        lines += ["", "from tidelog.protocol.uuids import ZERO_UUID"]
    return "\n".join(lines) + "\n\n\n" + body + "\n"


# --- the table of APIs ----------------------------------------------------------------------------------------------

APIS_HEAD = '''"""API keys and what Apache Kafka says of each. Generated by tools/extract_schemas.py: do not edit.

`min_version` to `max_version` is what Kafka {released} advertises: an unstable last version is left out, and
max_version is -1 for an API that it lacks. `newest_version` is the last one that the codec can read and write.
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from typing import Any

from msgspec import Struct


class Api(Struct, frozen=True):
    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    newest_version: int
    flexible_from: int
    listeners: tuple[str, ...]

    def request_class(self) -> type[Struct]:
        return self._shape("Request")

    def response_class(self) -> type[Struct]:
        return self._shape("Response")

    def _shape(self, suffix: str) -> type[Struct]:
        module: Any = import_module(f"tidelog.protocol.messages.{{self.module}}")
        shape: type[Struct] = getattr(module, self.name + suffix)
        return shape


class ApiKey(IntEnum):
'''


def api_line(request: Message) -> str:
    name = request.name.removesuffix("Request")
    low, high = request.stable_versions or (request.versions[0], -1)
    listeners = "(" + "".join(f'"{each}", ' for each in sorted(request.listeners)).rstrip(" ") + ")"
    listeners = listeners if request.listeners else "()"
    facts = f'"{name}", "{request.module}", {low}, {high}, {request.versions[1]}, {request.flexible_from}, {listeners}'
    return f"        Api({request.key}, {facts}),"


def apis_module(messages: list[Message]) -> str:
    requests = sorted((m for m in messages if m.kind == "request"), key=lambda message: message.key or 0)
    responses = {message.key: message for message in messages if message.kind == "response"}
    for request in requests:
        assert responses[request.key].flexible == request.flexible, request.name
        assert responses[request.key].versions == request.versions, request.name
    lines = [f"    {snake_case(request.name.removesuffix('Request')).upper()} = {request.key}" for request in requests]
    text = APIS_HEAD.format(released=RELEASED) + "\n".join(lines)
    text += "\n\n\nAPIS: dict[int, Api] = {\n    api.key: api\n    for api in (\n"
    return text + "\n".join(api_line(request) for request in requests) + "\n    )\n}\n"


# --- files ----------------------------------------------------------------------------------------------------------


def fresh_folder(folder: Path, suffix: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"*{suffix}"):
        old.unlink()
    return folder


def write_all(messages: list[Message]) -> None:
    modules: dict[str, list[Message]] = {}
    for message in sorted(messages, key=lambda message: (message.module, message.name)):
        modules.setdefault(message.module, []).append(message)
    schemas = fresh_folder(PROTOCOL / "schemas", ".txt")
    shapes = fresh_folder(PROTOCOL / "messages", ".py")
    doc = "Typed shapes of every Kafka message and stored record; see tools/extract_schemas.py."
    (shapes / "__init__.py").write_text(f'"""{doc}"""\n')
    for module, members in modules.items():
        (schemas / f"{module}.txt").write_text("".join(message.facts() for message in members))
        (shapes / f"{module}.py").write_text(shape_module(members))
    (PROTOCOL / "apis.py").write_text(apis_module(messages))
    ruff = shutil.which("ruff") or str(Path(sys.executable).with_name("ruff"))
    subprocess.run([ruff, "format", "-q", str(shapes), str(PROTOCOL / "apis.py")], check=True)
    print(f"{len(messages)} messages in {len(modules)} modules")


def main() -> None:
    released, newest = apache_libs(), newest_clients_libs()
    if released is None or newest is None:
        sys.exit(f"extract_schemas: {why_not()}")
    write_all(read_all(released, newest))


if __name__ == "__main__":
    main()
