"""Requests that the controller decides on: any broker takes and forwards them, the one that is named is nearest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from tidelog.client.cluster import CONTROLLER, Cluster
from tidelog.client.connection import Request
from tidelog.client.errors import BrokerError
from tidelog.protocol.errors import ErrorCode

ResponseT = TypeVar("ResponseT", bound=Struct)


async def ask_controller(
    cluster: Cluster,
    request: Request,
    shape: type[Struct],
    response: type[ResponseT],
    codes: Callable[[ResponseT], Iterable[int]],
) -> ResponseT:
    """The answer, whose single results may be errors; asked again while the broker is not the controller."""

    async def attempt() -> ResponseT:
        answer = await cluster.call(CONTROLLER, request, shape, response)
        if ErrorCode.NOT_CONTROLLER in codes(answer):
            await cluster.refresh([])
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return answer

    return await cluster.retrying(attempt)
