"""The facts, the shapes and the table of APIs agree with each other and with what Apache Kafka 4.3.1 advertises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from tests.unit.protocol.catalog import CATALOG, Entry
from tidelog.protocol.apis import APIS, ApiKey
from tidelog.protocol.schema import NO_VERSIONS, SCHEMAS, StructSchema, Versions, load_message
from tools.apache import apache_libs, newest_clients_libs, why_not
from tools.extract_schemas import read_all

# Measured on a running broker and controller; see docs of the ApiVersions API.
BROKER_LISTENER = (
    "0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4 19:2-7 "
    "20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 "
    "36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 "
    "55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 "
    "81:0-0 83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0"
)
CONTROLLER_LISTENER = (
    "1:4-18 17:0-1 18:0-4 19:2-7 20:1-6 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 "
    "43:0-2 44:0-1 45:0-1 46:0-0 49:0-1 50:0-0 51:0-0 52:0-2 53:0-1 54:0-1 55:0-2 56:2-3 57:0-2 58:0-0 59:0-1 60:0-2 "
    "62:0-4 63:0-2 64:0-0 67:0-0 70:0-0 73:0-0 80:0-1 81:0-0 82:0-0"
)
# librdkafka takes a missing Produce v0 for a broker that is too old, so Kafka advertises more than it has.
ADVERTISED_OTHERWISE = {0: "0:0-13"}
# Kafka leaves telemetry out where no plugin takes it.
NOT_ADVERTISED = {71, 72}


def advertised(listener: str) -> str:
    ranges = []
    for key, api in sorted(APIS.items()):
        if listener in api.listeners and api.max_version >= 0 and key not in NOT_ADVERTISED:
            ranges.append(ADVERTISED_OTHERWISE.get(key, f"{key}:{api.min_version}-{api.max_version}"))
    return " ".join(ranges)


def test_the_broker_listener_is_kafkas() -> None:
    assert advertised("broker") == BROKER_LISTENER


def test_the_controller_listener_is_kafkas() -> None:
    assert advertised("controller") == CONTROLLER_LISTENER


def test_every_api_has_a_request_and_a_response() -> None:
    assert set(ApiKey) == set(APIS)
    for api in APIS.values():
        request: Any = api.request_class()
        response: Any = api.response_class()
        assert request.API_KEY == response.API_KEY == api.key
        assert request.FLEXIBLE_FROM == response.FLEXIBLE_FROM == api.flexible_from
        assert api.newest_version >= api.max_version


def test_only_newer_clients_know_some_versions() -> None:
    assert (APIS[ApiKey.API_VERSIONS].max_version, APIS[ApiKey.API_VERSIONS].newest_version) == (4, 5)
    # The last version of InitProducerId is unstable: readable, never advertised.
    assert (APIS[ApiKey.INIT_PRODUCER_ID].max_version, APIS[ApiKey.INIT_PRODUCER_ID].newest_version) == (5, 6)


@pytest.mark.parametrize("entry", CATALOG, ids=repr)
def test_shape_and_facts_name_the_same_fields(entry: Entry) -> None:
    same_names(entry.shape, entry.schema.root)
    for name, inner in entry.schema.structs.items():
        same_names(getattr(entry.shape, name), inner)


def same_names(shape: type[Struct], facts: StructSchema) -> None:
    assert list(shape.__struct_fields__) == [field.name for field in facts.fields]
    assert shape() == shape()


@pytest.mark.parametrize("entry", CATALOG, ids=repr)
def test_the_annotations_of_a_shape_resolve(entry: Entry) -> None:
    # msgspec resolves every annotation, nested ones too, when it makes a decoder.
    fields = msgspec.structs.fields(entry.shape)
    assert len(fields) == len(entry.schema.root.fields)


def test_versions() -> None:
    assert Versions.parse("3+").has(3) and Versions.parse("3+").has(300) and not Versions.parse("3+").has(2)
    assert Versions.parse("1-4") == (1, 4)
    assert Versions.parse("2") == (2, 2)
    assert Versions.parse("none") == NO_VERSIONS and not NO_VERSIONS.has(0)


def test_an_unknown_message_is_an_error_with_its_name() -> None:
    with pytest.raises(LookupError, match=r"schemas/metadata\.txt has no message Metadata"):
        load_message("metadata", "Metadata")


@pytest.mark.java
def test_the_committed_facts_are_those_of_the_jars() -> None:
    released, newest = apache_libs(), newest_clients_libs()
    if released is None or newest is None:
        pytest.skip(f"no jars to read: {why_not()}")
    facts: dict[str, str] = {}
    for message in sorted(read_all(released, newest), key=lambda message: message.name):
        facts[message.module] = facts.get(message.module, "") + message.facts()
    assert facts == {path.stem: path.read_text() for path in Path(SCHEMAS).glob("*.txt")}
