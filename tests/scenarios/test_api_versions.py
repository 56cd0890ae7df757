"""What is advertised: only what is served, in the ranges of a running 4.3.1, and no feature that has not landed."""

from __future__ import annotations

from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

# Asked of a running 4.3.1 on its broker listener.
APACHE = (
    "0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4 19:2-7 "
    "20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 "
    "36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 "
    "55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 "
    "81:0-0 83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0"
)


def ask(wire: Wire, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
    return wire.call(request, version, ApiVersionsResponse)


def test_every_range_is_that_of_apache_kafka(wire: Wire) -> None:
    known = set(APACHE.split())
    ours = {f"{key.api_key}:{key.min_version}-{key.max_version}" for key in ask(wire, 4).api_keys}
    assert ours <= known
    assert len(ours) == 39


def test_features_are_finalised_only_when_they_have_landed(wire: Wire) -> None:
    answer = ask(wire, 4)
    assert {f.name: (f.min_version, f.max_version) for f in answer.supported_features} == {
        "group.version": (0, 1),
        "metadata.version": (7, 30),
        "transaction.version": (0, 2),
    }
    assert {f.name: f.max_version_level for f in answer.finalized_features} == {
        "group.version": 1,
        "metadata.version": 30,
        "transaction.version": 2,
    }
    assert answer.finalized_features_epoch >= 0


def test_a_client_without_a_proper_name_is_told_so(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="no spaces allowed", client_software_version="1.0")
    assert wire.call(request, 3, ApiVersionsResponse).error_code == 42


def test_all_topics_are_answered_anew_after_each_change(broker: Broker, wire: Wire) -> None:
    def names() -> set[str | None]:
        return {topic.name for topic in wire.call(MetadataRequest(topics=None), 12, MetadataResponse).topics}

    first, second = broker.create_topic(), None
    assert first in names()
    assert first in names(), "from the cache"
    second = broker.create_topic()
    assert {first, second} <= names()
