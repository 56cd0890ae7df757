"""Changing the configuration of topics, brokers and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.controller.decision import Decision
from tidelog.metadata.config import BrokerValues, Scope
from tidelog.metadata.config.alter import Change, Refusal, altered, replaced
from tidelog.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SCOPES: Final[Mapping[int, Scope]] = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker", GROUP_RESOURCE: "group"}


def resource_complaint(image: MetadataImage, resource_type: int, name: str) -> Refusal | None:
    """Why there is no such resource to configure, None when there is."""
    if resource_type == TOPIC_RESOURCE:
        if name not in image.topics:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == BROKER_RESOURCE:
        if name and (not name.isdecimal() or int(name) not in image.brokers):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id '{name}', expected the id of a broker or the empty string.",
            )
    elif resource_type == GROUP_RESOURCE:
        if not name:
            return Refusal(ErrorCode.INVALID_REQUEST, "The name of a group must not be empty.")
    else:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unsupported resource type {resource_type}: topics (2), brokers (4) and groups (32) have configs here.",
        )
    return None


def incremental_alter(request: IncrementalAlterConfigsRequest, image: MetadataImage, values: BrokerValues) -> Decision:
    shape = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    decision = Decision(IncrementalAlterConfigsResponse())
    twice = _named_twice(request.resources)
    for resource in request.resources:
        changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
        refusal = twice.get(_key(resource)) or resource_complaint(image, *_key(resource))
        if refusal is None:
            current = image.config(resource.resource_type, resource.resource_name)
            result = altered(
                SCOPES[resource.resource_type],
                current,
                changes,
                broker=values,
                cluster_wide=resource.resource_type == BROKER_RESOURCE and not resource.resource_name,
            )
            refusal = _record(decision, resource, current, result, request.validate_only)
        decision.response.responses.append(_answer(shape, resource, refusal))
    return decision


def alter(request: AlterConfigsRequest, image: MetadataImage, values: BrokerValues) -> Decision:
    """The old call: what is not named is removed."""
    shape = AlterConfigsResponse.AlterConfigsResourceResponse
    decision = Decision(AlterConfigsResponse())
    twice = _named_twice(request.resources)
    for resource in request.resources:
        refusal = twice.get(_key(resource)) or resource_complaint(image, *_key(resource))
        if refusal is None:
            result = replaced(
                SCOPES[resource.resource_type],
                {config.name: config.value for config in resource.configs},
                broker=values,
                cluster_wide=resource.resource_type == BROKER_RESOURCE and not resource.resource_name,
            )
            current = image.config(resource.resource_type, resource.resource_name)
            refusal = _record(decision, resource, current, result, request.validate_only)
        decision.response.responses.append(_answer(shape, resource, refusal))
    return decision


def _key(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _named_twice(resources: Sequence[Any]) -> dict[tuple[int, str], Refusal]:
    """Each would be decided over the same image, and the later would undo the earlier."""
    refusal = Refusal(ErrorCode.INVALID_REQUEST, "The resource is named twice in one request.")
    return {key: refusal for key, times in Counter(map(_key, resources)).items() if times > 1}


def _record(
    decision: Decision, resource: Any, current: Mapping[str, str], result: dict[str, str] | Refusal, validate_only: bool
) -> Refusal | None:
    if isinstance(result, Refusal):
        return result
    if not validate_only:
        for name in sorted(current.keys() | result.keys()):
            if current.get(name) != result.get(name):
                decision.records.append(
                    r.ConfigRecord(
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                        name=name,
                        value=result.get(name),
                    )
                )
    return None


def _answer(shape: Any, resource: Any, refusal: Refusal | None) -> Any:
    return shape(
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
