"""What a handler knows of the request it answers, and the place where an answer that must wait is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tidelog.broker.connection import Connection, Slot
from tidelog.kernel.ports import Part
from tidelog.protocol.frame import encode_response_parts, response_head

if TYPE_CHECKING:
    from tidelog.broker.api import Api
    from tidelog.broker.services import Services


class Encoded:
    """A response whose body is encoded already, for the version that was asked."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class RequestContext:
    """One per request. `may` and the throttle have their place here; they allow everything until security lands."""

    __slots__ = ("api", "client_id", "connection", "correlation_id", "received_s", "services", "version")

    def __init__(
        self,
        services: Services,
        connection: Connection,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
        received_s: float,
    ) -> None:
        self.services = services
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_s = received_s

    @property
    def now_ms(self) -> int:
        return self.services.clock.wall_ms()

    @property
    def client_host(self) -> str:
        """As Kafka prints and stores it: a slash, then the address."""
        return f"/{self.connection.peer_host}"

    def may(self, operation: str, **resource: str) -> bool:
        return True

    def encode(self, response: Struct | Encoded) -> Sequence[Part]:
        if isinstance(response, Encoded):
            return [response_head(self.api.key, self.version, self.correlation_id, len(response.body)), response.body]
        return encode_response_parts(response, self.version, self.correlation_id)

    def park(self) -> Parked:
        """Keep the place of this answer; whoever fills it must not hold a view of the request's bytes."""
        return Parked(self, self.connection.park())


class Parked:
    """An answer that waits. Answered at most once; dropped when the connection dies first."""

    __slots__ = ("_context", "_slot")

    def __init__(self, context: RequestContext, slot: Slot) -> None:
        self._context = context
        self._slot = slot

    def answer(self, response: Struct | Encoded) -> None:
        """A response that cannot be written is our bug, but not the bug of who hands it in: it costs the connection."""
        context = self._context
        try:
            encoded = context.encode(response)
        except ValueError as error:
            context.services.failed(error, context)
            return
        self._slot.fill(encoded)
        context.services.metrics.answered(context.api, context.received_s)

    def answer_in_turn(self, make: Callable[[], Struct | None]) -> None:
        """Make the answer when all before it have left and the peer takes more: large ones are not kept. None when it
        must wait even so; then `answer` is called later."""
        self._slot.fill_in_turn(lambda: self._made(make))

    def _made(self, make: Callable[[], Struct | None]) -> Sequence[Part] | None:
        context = self._context
        try:
            response = make()
            if response is None:
                return None
            encoded = context.encode(response)
        except Exception as error:
            context.services.failed(error, context)
            return ()
        context.services.metrics.answered(context.api, context.received_s)
        return encoded

    def when_dropped(self, callback: Callable[[], None]) -> None:
        self._slot.on_drop = callback

    def answer_from(self, future: asyncio.Future[Any]) -> None:
        future.add_done_callback(self._from_future)

    def _from_future(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self._context.connection.abort()
        elif (error := future.exception()) is not None:
            self._context.services.failed(error, self._context)
        else:
            self.answer(future.result())
