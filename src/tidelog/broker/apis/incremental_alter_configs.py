"""IncrementalAlterConfigs (44), versions 0-1. v1 flexible (KIP-339)."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.controller.configs import incremental_alter
from tidelog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


def handle(request: IncrementalAlterConfigsRequest, ctx: RequestContext) -> asyncio.Future[Any]:
    services = ctx.services
    return services.controller.submit(lambda image: incremental_alter(request, image, services.config.values))


API = Api(key=44, versions=range(0, 2), handle=handle)
