"""CreatePartitions (37), versions 0-3. v2 flexible."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.controller.partitions import create_partitions
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest


def handle(request: CreatePartitionsRequest, ctx: RequestContext) -> asyncio.Future[Any]:
    return ctx.services.controller.submit(lambda image: create_partitions(request, image))


API = Api(key=37, versions=range(0, 4), handle=handle)
