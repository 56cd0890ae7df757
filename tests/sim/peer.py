"""A scripted client on one connection: every request in the version that the script names, nothing done by itself."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from msgspec import Struct

from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError
from tidelog.client.options import ClientOptions
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.testing.simulation import NODE, PORT, SimulatedWorld

ResponseT = TypeVar("ResponseT", bound=Struct)


class Peer:
    """One process on a host of its own name. What it asks raises ClientError when no answer came: nobody knows then
    whether it happened, or will yet happen."""

    def __init__(self, world: SimulatedWorld, name: str, *, timeout_s: float = 1.0) -> None:
        self.name = name
        self._world = world
        self._options = ClientOptions(client_id=name, connect_timeout_s=0.5, request_timeout_s=timeout_s)
        self._connection: Connection | None = None

    def now_s(self) -> float:
        return self._world.loop.time()

    async def ask(
        self, request: Struct, response: type[ResponseT], version: int, *, timeout_s: float | None = None
    ) -> ResponseT:
        connection = self._connection
        if connection is None or not connection.is_open:
            host = self._world.net.host(self.name)
            connection = self._connection = await Connection.open(host, NODE, PORT, self._options)
        return await connection.call(request, response, version=version, timeout_s=timeout_s)

    async def find_coordinator(self, key: str, *, transactional: bool = False) -> None:
        """Until it has one: the first to ask makes the internal topic."""
        request = FindCoordinatorRequest(key_type=int(transactional), coordinator_keys=[key])
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while code != ErrorCode.NONE:
            try:
                answer = await self.ask(request, FindCoordinatorResponse, 4)
            except ClientError:
                await asyncio.sleep(0.1)
            else:
                code = ErrorCode(answer.coordinators[0].error_code)

    def hang_up(self) -> None:
        """The next request gets another connection; what is under way on this one still arrives."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def die(self, *, silent: bool) -> None:
        """The process is gone, with its host."""
        self._connection = None
        self._world.net.crash(self.name, silent=silent)
