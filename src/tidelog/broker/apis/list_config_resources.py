"""ListConfigResources (74), versions 0-1. v0 knows client metrics only (KIP-714), v1 every type (KIP-1142)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_BROKER_LOGGER: Final = 8
_CLIENT_METRICS: Final = 16
_TYPES: Final = (GROUP_RESOURCE, _CLIENT_METRICS, _BROKER_LOGGER, BROKER_RESOURCE, TOPIC_RESOURCE)


def handle(request: ListConfigResourcesRequest, ctx: RequestContext) -> ListConfigResourcesResponse:
    wanted = set(request.resource_types or _TYPES) if ctx.version >= 1 else {_CLIENT_METRICS}
    if not wanted.issubset(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in _TYPES
            if kind in wanted
            for name in _names(kind, ctx.services.image)
        ]
    )


def _names(kind: int, image: MetadataImage) -> Iterable[str]:
    """Topics and brokers all have configs; of the others those are listed that were given some."""
    if kind == TOPIC_RESOURCE:
        return sorted(image.topics)
    if kind in (BROKER_RESOURCE, _BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(name for (resource_type, name), configs in image.configs.items() if resource_type == kind and configs)


API = Api(key=74, versions=range(0, 2), handle=handle)
