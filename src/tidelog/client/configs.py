"""Configs of topics, brokers and groups: describe and change one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.client.cluster import ANY_NODE, Cluster
from tidelog.client.controlling import ask_controller
from tidelog.client.errors import BrokerError, ClientError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(NamedTuple):
    type: ResourceType
    name: str
    """For a broker its id, or "" for the default of all."""

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(default)'}"


class ConfigChange(NamedTuple):
    name: str
    operation: Operation
    value: str | None = None


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


async def describe_configs(
    cluster: Cluster,
    resource: Resource,
    names: Sequence[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[ConfigEntry]:
    """The configs of one resource, all or the named ones, sorted by name."""

    def request(version: int) -> DescribeConfigsRequest:
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configuration_keys=None if names is None else list(names),
        )
        return DescribeConfigsRequest(
            resources=[wanted], include_synonyms=synonyms, include_documentation=documentation and version >= 3
        )

    async def attempt() -> DescribeConfigsResponse.DescribeConfigsResult:
        node = _node_of(resource)
        answer = await cluster.call(node, request, DescribeConfigsRequest, DescribeConfigsResponse)
        result = answer.results[0]
        if result.error_code != ErrorCode.NONE:
            raise BrokerError(result.error_code, str(resource), result.error_message)
        return result

    result = await cluster.retrying(attempt, final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
    return sorted(map(_entry, result.configs))


async def alter_configs(
    cluster: Cluster, changes: Mapping[Resource, Sequence[ConfigChange]], *, validate_only: bool = False
) -> dict[Resource, ClientError | None]:
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(
                    name=change.name, config_operation=change.operation, value=change.value
                )
                for change in wanted
            ],
        )
        for resource, wanted in changes.items()
    ]
    answer = await ask_controller(
        cluster,
        IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only),
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        lambda found: (resource.error_code for resource in found.responses),
    )
    results: dict[Resource, ClientError | None] = {}
    for found in answer.responses:
        resource = Resource(ResourceType(found.resource_type), found.resource_name)
        failed = found.error_code != ErrorCode.NONE
        results[resource] = BrokerError(found.error_code, str(resource), found.error_message) if failed else None
    return results


def _node_of(resource: Resource) -> int:
    """A broker describes only itself; everything else any broker knows."""
    is_one_broker = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal()
    return int(resource.name) if is_one_broker else ANY_NODE


def _entry(found: DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=found.name,
        value=found.value,
        source=_source(found.config_source),
        is_read_only=found.read_only,
        is_sensitive=found.is_sensitive,
        synonyms=tuple(ConfigSynonym(one.name, one.value, _source(one.source)) for one in found.synonyms),
        documentation=found.documentation or None,
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
