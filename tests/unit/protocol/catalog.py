"""Every message and version that the codec knows, and hypothesis strategies made from the same facts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tidelog.protocol import schema
from tidelog.protocol.schema import Field, MessageSchema, StructSchema

Shape = type[Struct]
INT_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


class Entry(NamedTuple):
    module: str
    schema: MessageSchema
    shape: Shape

    @property
    def versions(self) -> range:
        return range(self.schema.versions.low, self.schema.versions.high + 1)

    def __repr__(self) -> str:
        return self.schema.name


def _load(module: str) -> list[Entry]:
    shapes: Any = import_module(f"tidelog.protocol.messages.{module}")
    return [
        Entry(module, schema.load_message(module, name), getattr(shapes, name)) for name in schema.message_names(module)
    ]


CATALOG = [entry for path in sorted(Path(schema.SCHEMAS).glob("*.txt")) for entry in _load(path.stem)]


@cache
def _scalar(kind: str, tame: bool) -> st.SearchStrategy[Any]:
    """Values with an eye on the edges; tame ones are small, so that kio's narrower types take them too."""
    if kind in INT_RANGES:
        low, high = INT_RANGES[kind]
        edges = (0, 1) if tame else (0, 1, -1, low, high)
        usual = st.sampled_from([edge for edge in edges if low <= edge <= high])
        return usual if tame else usual | st.integers(low, high)
    return {
        "bool": st.booleans(),
        "float64": st.sampled_from([0.0, -1.5, 1e300]),
        # Lengths around 127 and 128 cross from one byte of varint to two.
        "string": st.text(max_size=3) | st.sampled_from(["é" * 63 + "a", "x" * 128, "😀" * 4000]),
        "bytes": st.binary(max_size=3) | st.sampled_from([bytes(126), bytes(127), bytes(20_000)]),
        "records": st.binary(max_size=3) | st.just(bytes(300)),
        "uuid": st.sampled_from([bytes(16), bytes(range(16)), b"\xff" * 16]),
    }[kind]


def messages(entry: Entry, version: int, tame: bool = False) -> st.SearchStrategy[Struct]:
    """Messages that set only what the version has, so that a round trip must give back an equal one."""
    return _structs(entry, entry.schema.root, entry.shape, version, tame)


def _structs(entry: Entry, own: StructSchema, shape: Shape, version: int, tame: bool) -> st.SearchStrategy[Struct]:
    present = [field for field in own.fields if field.versions.has(version) or field.tagged.has(version)]
    fields = {field.name: _field(entry, field, version, tame) for field in present}
    return st.builds(shape, **fields)


def _field(entry: Entry, field: Field, version: int, tame: bool) -> st.SearchStrategy[Any]:
    if field.is_struct:
        shape: Shape = getattr(entry.shape, field.type)
        value: st.SearchStrategy[Any] = _structs(entry, entry.schema.structs[field.type], shape, version, tame)
    elif tame and field.name.endswith("error_code"):
        value = st.sampled_from([0, 3])
    else:
        value = _scalar(field.type, tame)
    if field.is_array:
        value = st.lists(value, max_size=2)
    return st.none() | value if field.nullable.has(version) else value


def for_examples(strategy: st.SearchStrategy[Any], count: int, check: Callable[[Any], None]) -> None:
    """Runs the check on drawn values; a failure is shrunk and shown as in any hypothesis test."""

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def run(value: Any) -> None:
        check(value)

    run()
