"""The same bytes as Apache Kafka's own classes, for every message and version."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec import Struct

from tests.unit.java_witness import Refused
from tests.unit.protocol.catalog import CATALOG, Entry, for_examples, messages
from tests.unit.protocol.oracle import Oracle
from tidelog.protocol.codec import UnsupportedVersion, decode, encode
from tidelog.protocol.schema import Field, StructSchema
from tidelog.protocol.uuids import uuid_to_text

pytestmark = pytest.mark.java

EXAMPLES_PER_VERSION = 4
# What only the clients of 4.4.0 know.
NEWER = {
    "AbortedTxn": range(1),
    "ApiVersionsRequest": range(5, 6),
    "ApiVersionsResponse": range(5, 6),
    "DeleteGroupsRequest": range(3, 4),
    "DeleteGroupsResponse": range(3, 4),
    "StreamsGroupDescribeRequest": range(1, 2),
    "StreamsGroupDescribeResponse": range(1, 2),
    "StreamsGroupHeartbeatRequest": range(1, 2),
    "StreamsGroupHeartbeatResponse": range(1, 2),
    "StreamsGroupTopologyDescriptionUpdateRequest": range(1),
    "StreamsGroupTopologyDescriptionUpdateResponse": range(1),
    "TxnOffsetCommitRequest": range(6, 7),
    "TxnOffsetCommitResponse": range(6, 7),
    "UnregisterControllerRequest": range(1),
    "UnregisterControllerResponse": range(1),
}


# Names that 4.4.0 changed, as 4.3.1 has them.
RENAMED = {
    "generationid": "generationidormemberepoch",
    "acceptablerecoverylag": "acceptablerecoverylaglegacy",
}


def released(entry: Entry) -> list[int]:
    return [version for version in entry.versions if version not in NEWER.get(entry.schema.name, ())]


RELEASED = [entry for entry in CATALOG if released(entry)]


@pytest.mark.parametrize("entry", RELEASED, ids=repr)
def test_kafka_reads_and_writes_the_same_bytes(entry: Entry, oracle: Oracle) -> None:
    for version in released(entry):
        same_bytes(entry, version, oracle, EXAMPLES_PER_VERSION)


@pytest.mark.parametrize("entry", [entry for entry in CATALOG if entry.schema.name in NEWER], ids=repr)
def test_newer_clients_read_and_write_the_same_bytes(entry: Entry, newest_oracle: Oracle) -> None:
    for version in NEWER[entry.schema.name]:
        same_bytes(entry, version, newest_oracle, 3 * EXAMPLES_PER_VERSION)
        same_defaults(entry, version, newest_oracle)


def same_bytes(entry: Entry, version: int, oracle: Oracle, examples: int) -> None:
    def check(message: Struct) -> None:
        data = encode(message, version)
        assert oracle.reread(entry, version, data) == data

    for_examples(messages(entry, version), examples, check)


@pytest.mark.parametrize("entry", RELEASED, ids=repr)
def test_a_fresh_message_of_kafka_is_a_fresh_shape(entry: Entry, oracle: Oracle) -> None:
    for version in released(entry):
        same_defaults(entry, version, oracle)


def same_defaults(entry: Entry, version: int, oracle: Oracle) -> None:
    try:
        data = oracle.default(entry, version)
    except Refused:
        with pytest.raises(ValueError):
            encode(entry.shape(), version)
        return
    assert encode(entry.shape(), version) == data
    assert decode(entry.shape, version, data) == entry.shape()


@pytest.mark.parametrize("entry", [entry for entry in RELEASED if len(released(entry)) > 1], ids=repr)
def test_a_field_that_a_version_lacks_is_dropped_or_refused_as_in_kafka(entry: Entry, oracle: Oracle) -> None:
    newest = released(entry)[-1]

    def check(drawn: tuple[Struct, int]) -> None:
        message, other = drawn
        data = encode(message, newest)
        try:
            expected = oracle.convert(entry, newest, other, data)
        except Refused as refusal:
            with pytest.raises(UnsupportedVersion if "non-default" in str(refusal) else ValueError):
                encode(message, other)
        else:
            assert encode(message, other) == expected

    drawn = st.tuples(messages(entry, newest), st.sampled_from(released(entry)[:-1]))
    for_examples(drawn, 4 * EXAMPLES_PER_VERSION, check)


@pytest.mark.parametrize("entry", RELEASED, ids=repr)
def test_unknown_tags_on_every_struct_are_skipped(entry: Entry, oracle: Oracle) -> None:
    version = released(entry)[-1]
    if not entry.schema.flexible.has(version):
        return

    def check(message: Struct) -> None:
        plain = encode(message, version)
        tagged = oracle.with_unknown_tags(entry, version, plain)
        assert len(tagged) > len(plain)
        assert decode(entry.shape, version, tagged) == message

    for_examples(messages(entry, version), 2, check)


@pytest.mark.parametrize("entry", RELEASED, ids=repr)
def test_kafka_sees_each_value_in_the_field_of_the_same_name(entry: Entry, oracle: Oracle) -> None:
    version = released(entry)[-1]

    def check(message: Struct) -> None:
        text = oracle.json(entry, version, encode(message, version))
        same_fields(entry, entry.schema.root, message, json.loads(text))

    for_examples(messages(entry, version), EXAMPLES_PER_VERSION, check)


def same_fields(entry: Entry, own: StructSchema, message: Any, seen: dict[str, Any]) -> None:
    fields = {field.name.replace("_", ""): field for field in own.fields}
    for name, value in seen.items():
        if name.endswith("SizeInBytes") and name.removesuffix("SizeInBytes").lower() in fields:
            continue
        newest_name = RENAMED.get(name.lower(), name.lower())
        field = fields.get(newest_name) or fields[name.lower()]
        same_value(entry, field, getattr(message, field.name), value)


def same_value(entry: Entry, field: Field, ours: Any, theirs: Any) -> None:
    if ours is None or theirs is None:
        assert ours is theirs
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            same_value(entry, field, our, their)
    elif field.is_struct:
        same_fields(entry, entry.schema.structs[field.type], ours, theirs)
    elif field.type == "uuid":
        assert uuid_to_text(ours) == theirs
    elif field.type == "bytes":
        assert b64encode(ours).decode() == theirs
    elif field.type != "records":
        assert ours == theirs
