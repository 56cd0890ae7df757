"""The same bytes as kio, an independent codec in Python, for every message that it has.

kio maps some numbers to narrower types (error codes, durations, points in time), so it gets tame values.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from msgspec import Struct

from tests.unit.protocol.catalog import CATALOG, Entry, for_examples, messages
from tidelog.protocol.codec import encode

KIND = {
    "request": EntityType.request,
    "response": EntityType.response,
    "data": EntityType.data,
    "header": EntityType.header,
}


def kio_name(entry: Entry) -> str:
    if entry.schema.kind in ("request", "response"):
        return entry.module
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in entry.schema.name).lstrip("_")


def kio_path(entry: Entry, version: int) -> str | None:
    kind: Any = KIND.get(entry.schema.kind)
    return schema_name_map.get(kio_name(entry), {}).get(version, {}).get(kind)


KNOWN = [entry for entry in CATALOG if any(kio_path(entry, version) for version in entry.versions)]


def load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(__import__(module, fromlist=[name]), name)


def test_kio_has_most_messages() -> None:
    assert len(KNOWN) > 180


@pytest.mark.parametrize("entry", KNOWN, ids=repr)
def test_kio_reads_and_writes_the_same_bytes(entry: Entry) -> None:
    for version in entry.versions:
        path = kio_path(entry, version)
        if path is None:
            continue
        entity = load(path)
        read, write = entity_reader(entity), entity_writer(entity)

        def check(message: Struct, version: int = version, read: Any = read, write: Any = write) -> None:
            data = encode(message, version)
            seen, size = read(data, 0)
            assert size == len(data)
            again = BytesIO()
            write(again, seen)
            assert again.getvalue() == data

        for_examples(messages(entry, version, tame=True), 3, check)
