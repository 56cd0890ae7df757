"""Configs of GROUP resources over the wire: the same script against Tidelog and Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tidelog.testing.wire import Wire

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1
SESSION = "consumer.session.timeout.ms"
FROM_GROUP, FROM_DEFAULT = 8, 5
SOON_S = 20.0


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as wire:
        yield wire


def alter(wire: Wire, group: str, *changes: tuple[str, int, str | None], dry: bool = False) -> int:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=GROUP,
        resource_name=group,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
    return wire.call(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code


def described(wire: Wire, group: str, *names: str) -> dict[str, tuple[str | None, int]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=list(names) or None
    )
    (result,) = wire.call(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results
    assert result.error_code == ErrorCode.NONE
    return {config.name: (config.value, config.config_source) for config in result.configs}


def listed(wire: Wire, *kinds: int, version: int = 1) -> list[tuple[int, str]] | int:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    answer = wire.call(request, version, ListConfigResourcesResponse)
    if answer.error_code:
        return answer.error_code
    return [(one.resource_type, one.resource_name) for one in answer.config_resources]


def soon(check: Callable[[], bool]) -> None:
    """Apache answers a change before every part of the broker has seen it."""
    deadline = time.monotonic() + SOON_S
    while not check():
        assert time.monotonic() < deadline, "the change was not seen"
        time.sleep(0.01)


def test_a_group_that_nobody_has_seen_can_be_configured_and_described(wire: Wire) -> None:
    assert described(wire, "gc-new", SESSION) == {SESSION: ("45000", FROM_DEFAULT)}
    assert alter(wire, "gc-new", (SESSION, SET, "50000")) == ErrorCode.NONE
    soon(lambda: described(wire, "gc-new", SESSION) == {SESSION: ("50000", FROM_GROUP)})
    assert alter(wire, "gc-new", (SESSION, DELETE, None)) == ErrorCode.NONE
    soon(lambda: described(wire, "gc-new", SESSION) == {SESSION: ("45000", FROM_DEFAULT)})


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (SESSION, "44999", ErrorCode.INVALID_CONFIG),
        (SESSION, "60001", ErrorCode.INVALID_CONFIG),
        (SESSION, "soon", ErrorCode.INVALID_CONFIG),
        (SESSION, "-1", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "4999", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        ("consumer.assignment.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        ("retention.ms", "1", ErrorCode.INVALID_CONFIG),
        ("no.such.config", "1", ErrorCode.INVALID_CONFIG),
        (SESSION, None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_the_broker_does_not_allow_changes_nothing(wire: Wire, name: str, value: str | None, code: int) -> None:
    assert alter(wire, "gc-bad", (name, SET, value)) == code
    assert (GROUP, "gc-bad") not in (listed(wire, GROUP) or [])
    assert described(wire, "gc-bad", SESSION) == {SESSION: ("45000", FROM_DEFAULT)}


def test_a_group_without_a_name_has_no_configs(wire: Wire) -> None:
    assert alter(wire, "", (SESSION, SET, "50000")) == ErrorCode.INVALID_REQUEST


def test_a_dry_run_changes_nothing(wire: Wire) -> None:
    assert alter(wire, "gc-dry", (SESSION, SET, "50000"), dry=True) == ErrorCode.NONE
    assert described(wire, "gc-dry", SESSION) == {SESSION: ("45000", FROM_DEFAULT)}


def test_resources_are_listed_by_type(wire: Wire) -> None:
    alter(wire, "gc-listed", (SESSION, SET, "50000"))
    soon(lambda: (GROUP, "gc-listed") in (listed(wire, GROUP) or []))
    everything = listed(wire)
    assert isinstance(everything, list)
    assert {(GROUP, "gc-listed"), (BROKER, "1"), (LOGGER, "1")} <= set(everything)
    assert listed(wire, BROKER) == [(BROKER, "1")]
    assert sorted(listed(wire, BROKER, LOGGER) or []) == [(BROKER, "1"), (LOGGER, "1")]
    assert listed(wire, CLIENT_METRICS) == []
    assert listed(wire, version=0) == []


@pytest.mark.parametrize("kind", [0, 1, 3, 99, -1])
def test_a_type_that_has_no_configs_is_refused(wire: Wire, kind: int) -> None:
    assert listed(wire, kind) == ErrorCode.UNSUPPORTED_VERSION
    assert listed(wire, BROKER, kind) == ErrorCode.UNSUPPORTED_VERSION
