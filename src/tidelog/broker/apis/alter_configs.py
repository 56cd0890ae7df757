"""AlterConfigs (33), versions 0-2. v2 flexible. What a request does not name is removed."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.controller.configs import alter
from tidelog.protocol.messages.alter_configs import AlterConfigsRequest


def handle(request: AlterConfigsRequest, ctx: RequestContext) -> asyncio.Future[Any]:
    services = ctx.services
    return services.controller.submit(lambda image: alter(request, image, services.config.values))


API = Api(key=33, versions=range(0, 3), handle=handle)
