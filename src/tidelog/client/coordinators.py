"""Which broker coordinates a group (FindCoordinator), remembered until it proves wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tidelog.client.cluster import ANY_NODE, Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_FIRST_VERSION_WITH_MANY = 4


class Coordinators:
    """The places of groups, for fan_out and for a member of one group."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known = cluster.coordinators

    async def locate(self, items: Sequence[str]) -> Mapping[str, int | ClientError]:
        unknown = [group for group in items if group not in self._known]
        found: dict[str, int | ClientError] = {}
        if unknown:
            try:
                found = await self._ask(unknown)
            except ClientError as error:
                found = dict.fromkeys(unknown, error)
        self._known.update({group: place for group, place in found.items() if isinstance(place, int)})
        return {group: found.get(group, self._known.get(group, ANY_NODE)) for group in items}

    async def find(self, group: str) -> int:
        place = (await self.locate([group]))[group]
        if isinstance(place, ClientError):
            raise place
        return place

    def forget(self, item: str) -> None:
        self._known.pop(item, None)

    async def _ask(self, groups: Sequence[str]) -> dict[str, int | ClientError]:
        connection = await self._cluster.connection(ANY_NODE)
        version = connection.version_of(FindCoordinatorRequest)
        if version >= _FIRST_VERSION_WITH_MANY:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=list(groups))
            answer = await connection.call(request, FindCoordinatorResponse, version=version)
            return {one.key: _place(one.key, one) for one in answer.coordinators}
        answers = await asyncio.gather(
            *(connection.call(_single(group, version), FindCoordinatorResponse, version=version) for group in groups)
        )
        return {group: _place(group, answer) for group, answer in zip(groups, answers, strict=True)}


def _single(group: str, version: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=group) if version < 1 else FindCoordinatorRequest(key=group, key_type=0)


def _place(group: str, answer: FindCoordinatorResponse | FindCoordinatorResponse.Coordinator) -> int | ClientError:
    if answer.error_code != ErrorCode.NONE:
        return BrokerError(answer.error_code, f"group {group}", answer.error_message or None)
    return answer.node_id
