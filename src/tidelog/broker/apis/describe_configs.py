"""DescribeConfigs (32), versions 1-4. v1 synonyms and source, v3 type and documentation, v4 flexible."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.controller.configs import resource_complaint
from tidelog.metadata.config.describe import (
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from tidelog.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


def handle(request: DescribeConfigsRequest, ctx: RequestContext) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(resource, request, ctx) for resource in request.resources])


def _describe(
    resource: DescribeConfigsRequest.DescribeConfigsResource, request: DescribeConfigsRequest, ctx: RequestContext
) -> _Result:
    result = _Result(resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None)
    complaint = resource_complaint(ctx.services.image, resource.resource_type, resource.resource_name)
    if complaint is None and resource.resource_type == BROKER_RESOURCE:
        own = str(ctx.services.node_id)
        if resource.resource_name not in ("", own):
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"This is broker {own}: ask broker {resource.resource_name} for its configs."
            return result
    if complaint is not None:
        result.error_code = complaint.code
        result.error_message = complaint.message
        return result
    result.configs = [_config(entry, request) for entry in _entries(resource, ctx)]
    return result


def _entries(resource: DescribeConfigsRequest.DescribeConfigsResource, ctx: RequestContext) -> list[DescribedConfig]:
    values = ctx.services.config.values
    names = resource.configuration_keys
    overrides = ctx.services.image.config(resource.resource_type, resource.resource_name)
    if resource.resource_type == TOPIC_RESOURCE:
        return describe_topic(overrides, values, names)
    if resource.resource_type == GROUP_RESOURCE:
        return describe_group(overrides, values, names)
    if resource.resource_name:
        return describe_broker(values, names)
    return describe_broker_defaults(values, names)


def _config(entry: DescribedConfig, request: DescribeConfigsRequest) -> _Config:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return _Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=[_Synonym(name=s.name, value=s.value, source=int(s.source)) for s in synonyms],
        config_type=entry.type_code,
        documentation=entry.doc if request.include_documentation else None,
    )


API = Api(key=32, versions=range(1, 5), handle=handle)
