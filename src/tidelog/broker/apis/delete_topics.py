"""DeleteTopics (20), versions 1-6. v4 flexible, v5 error message, v6 by id (KIP-516)."""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.controller.topics import delete_topics
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


def handle(request: DeleteTopicsRequest, ctx: RequestContext) -> DeleteTopicsResponse | asyncio.Future[Any]:
    if not ctx.services.config.boolean("delete.topic.enable"):
        return _disabled(request, ctx.version)
    return ctx.services.controller.submit(lambda image: delete_topics(request, image, by_names=ctx.version < 6))


def _disabled(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    names = request.topic_names if version < 6 else [topic.name or "" for topic in request.topics]
    shape = DeleteTopicsResponse.DeletableTopicResult
    return DeleteTopicsResponse(
        responses=[shape(name=name, error_code=code, error_message="delete.topic.enable is false") for name in names]
    )


API = Api(key=20, versions=range(1, 7), handle=handle)
