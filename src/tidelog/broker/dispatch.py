"""One way for every request: header, version check, decode, handle, encode, count and time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tidelog.broker.api import Api
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.services import Services
from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Part
from tidelog.protocol.codec import decode_from
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import read_request_head
from tidelog.protocol.messages.api_versions import ApiVersionsResponse

_API_VERSIONS: Final = 18


class Dispatch:
    def __init__(self, services: Services, apis: list[Api]) -> None:
        self._services = services
        self._apis = {api.key: api for api in apis}

    def handle_frame(self, connection: Connection, frame: memoryview) -> Answer | None:
        """The answer if it is there now; None when it is parked, or when there will be none."""
        if (again := connection.again) is not None:
            try:
                known = again(connection, frame)
            except Exception as error:
                self._services.failed(error, self._context(connection, frame)[0])
                return None
            if known is not False:
                return known
        return self._handle_new(connection, frame)

    def _handle_new(self, connection: Connection, frame: memoryview) -> Answer | None:
        context, position = self._context(connection, frame)
        api, version = context.api, context.version
        if version not in api.versions:
            return self._unsupported(context)
        # Bytes after the message are let be, as Kafka does: librdkafka 2.16 asks for all topics with three too many.
        request, _ = decode_from(api.request_class, version, frame, position)
        answer = self._answer(api, request, context)
        if api.learn is not None:
            # Ever more seldom with a connection whose requests are never like the one before.
            connection.again_misses += 1
            if connection.again_misses & (connection.again_misses - 1) == 0:
                connection.again = api.learn(request, context) or connection.again
        return answer

    def _context(self, connection: Connection, frame: memoryview) -> tuple[RequestContext, int]:
        """What the request's header says, and where its body starts."""
        key, version, correlation_id, client_id, position = read_request_head(frame)
        api = self._apis.get(key)
        if api is None:
            raise ProtocolError(f"API key {key} (version {version}) is not served here")
        received_s = connection.received_s
        return RequestContext(self._services, connection, api, version, correlation_id, client_id, received_s), position

    def _answer(self, api: Api, request: Struct, context: RequestContext) -> Sequence[Part] | None:
        try:
            answer = api.handle(request, context)
            if isinstance(answer, Parked):
                return None
            if answer is None:
                self._services.metrics.answered(api, context.received_s)
                return None
            if isinstance(answer, asyncio.Future):
                context.park().answer_from(answer)
                return None
            encoded = context.encode(answer)
        except Exception as error:
            if isinstance(error, ProtocolError):
                raise
            self._services.failed(error, context)
            return None
        self._services.metrics.answered(api, context.received_s)
        return encoded

    def _unsupported(self, context: RequestContext) -> Sequence[Part]:
        api = context.api
        if api.key != _API_VERSIONS:
            raise ProtocolError(f"version {context.version} of {api.name} is not supported")
        # KIP-511: a client that opens with a newer ApiVersions learns our range from an answer in version 0.
        context.version = 0
        shape = ApiVersionsResponse.ApiVersion
        known = shape(api_key=api.key, min_version=api.versions.start, max_version=api.versions.stop - 1)
        return context.encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known]))
