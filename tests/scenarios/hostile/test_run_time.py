"""Limits on connections are changed while the node runs, as Kafka's are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

BROKER_RESOURCE = 4


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def set_limit(wire: Wire, name: str, value: str) -> None:
    shape = IncrementalAlterConfigsRequest
    config = shape.AlterableConfig(name=name, config_operation=0, value=value)
    resource = shape.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=[config])
    answer = wire.call(shape(resources=[resource]), 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


def is_served(wire: Wire) -> bool:
    try:
        return wire.call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE
    except ConnectionError:
        return False


def test_connections_of_one_address(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as first, Wire(broker.bootstrap_servers) as second:
        assert is_served(second)
        set_limit(first, "max.connections.per.ip", "2")
        with Wire(broker.bootstrap_servers) as third:
            assert not is_served(third)
        assert is_served(second), "who is in stays"
        set_limit(first, "max.connections.per.ip.overrides", "127.0.0.1:3")
        with Wire(broker.bootstrap_servers) as third:
            assert is_served(third)


@pytest.mark.parametrize("name", ["max.connections", "listener.name.plaintext.max.connections"])
def test_one_too_many_waits_until_the_limit_is_raised(broker: Broker, name: str) -> None:
    with Wire(broker.bootstrap_servers) as first, Wire(broker.bootstrap_servers) as second:
        assert is_served(second)
        set_limit(first, name, "2")
        with Wire(broker.bootstrap_servers) as third:
            third.send(ApiVersionsRequest(), 0)
            third.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                third.socket.recv(1)
            set_limit(first, name, "3")
            third.socket.settimeout(30)
            assert third.receive(ApiVersionsResponse, 0).error_code == ErrorCode.NONE


def test_a_lowered_limit_closes_the_longest_idle(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as idle, Wire(broker.bootstrap_servers) as busy:
        assert is_served(idle) and is_served(busy)
        set_limit(busy, "max.connections", "1")
        assert idle.socket.recv(1) == b""
        assert is_served(busy)
