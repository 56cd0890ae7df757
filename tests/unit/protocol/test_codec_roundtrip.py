"""What is written is read back equal: every message in every version that the schemas know."""

from __future__ import annotations

import pytest
from msgspec import Struct

from tests.unit.protocol.catalog import CATALOG, Entry, for_examples, messages
from tests.unit.protocol.reference import Reference
from tidelog.protocol.codec import decode, decode_from, encode

EXAMPLES_PER_VERSION = 5


@pytest.mark.parametrize("entry", CATALOG, ids=repr)
def test_every_version_round_trips(entry: Entry) -> None:
    for version in entry.versions:

        def round_trip(message: Struct, version: int = version) -> None:
            data = encode(message, version)
            assert data == Reference(entry, version, {}).encode(message)
            assert decode(entry.shape, version, data) == message
            framed = memoryview(b"\xff" + data + b"\xff")
            assert decode_from(entry.shape, version, framed, 1) == (message, 1 + len(data))

        for_examples(messages(entry, version), EXAMPLES_PER_VERSION, round_trip)
