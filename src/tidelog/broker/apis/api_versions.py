"""ApiVersions (18), versions 0-4. v1 throttle, v3 flexible with client software and features (KIP-511, KIP-584), v4
features whose minimum is 0 (KAFKA-17011). A newer version is answered in v0 by dispatch."""

from __future__ import annotations

import re

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.controller.brokers import SUPPORTED_FEATURES
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, ctx: RequestContext) -> ApiVersionsResponse:
    if ctx.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.version >= 3:
        ctx.connection.software = (request.client_software_name, request.client_software_version)
    response = ApiVersionsResponse(api_keys=_api_keys(ctx.services.apis))
    if ctx.version >= 3:
        image = ctx.services.image
        response.supported_features = [
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            if low > 0 or ctx.version >= 4
        ]
        response.finalized_features_epoch = image.offset
        response.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
            # A directory of Apache Kafka has finalised more: a client must not rely on what is not there.
            if name in SUPPORTED_FEATURES
        ]
    return response


def _api_keys(apis: list[Api]) -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=api.key,
            min_version=api.versions.start if api.advertised_from is None else api.advertised_from,
            max_version=api.versions.stop - 1,
        )
        for api in apis
    ]


API = Api(key=18, versions=range(0, 5), handle=handle)
