"""CreateTopics (19), versions 2-7. v4 -1 for the defaults (KIP-464), v5 flexible, configs in the answer, v7 topic
id."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.controller.topics import create_topics
from tidelog.protocol.messages.create_topics import CreateTopicsRequest


def handle(request: CreateTopicsRequest, ctx: RequestContext) -> asyncio.Future[Any]:
    services = ctx.services
    return services.controller.submit(
        lambda image: create_topics(request, image, services.config.values, services.random)
    )


API = Api(key=19, versions=range(2, 8), handle=handle)
