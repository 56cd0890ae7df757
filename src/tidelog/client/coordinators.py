"""Which broker coordinates a group or a transactional id (FindCoordinator), remembered until it proves wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tidelog.client.cluster import ANY_NODE, Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_FIRST_VERSION_WITH_MANY = 4
GROUP = 0
TRANSACTION = 1
_NOUNS = {GROUP: "group", TRANSACTION: "transactional id"}


class Coordinators:
    """The places of groups, for fan_out and for a member of one group; or of transactional ids."""

    def __init__(self, cluster: Cluster, key_type: int = GROUP) -> None:
        self._cluster = cluster
        self._key_type = key_type
        self._known = cluster.coordinators if key_type == GROUP else {}

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
            request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=list(groups))
            answer = await connection.call(request, FindCoordinatorResponse, version=version)
            return {one.key: self._place(one.key, one) for one in answer.coordinators}
        answers = await asyncio.gather(
            *(connection.call(self._single(key, version), FindCoordinatorResponse, version=version) for key in groups)
        )
        return {group: self._place(group, answer) for group, answer in zip(groups, answers, strict=True)}

    def _single(self, key: str, version: int) -> FindCoordinatorRequest:
        if version < 1:
            return FindCoordinatorRequest(key=key)
        return FindCoordinatorRequest(key=key, key_type=self._key_type)

    def _place(
        self, key: str, answer: FindCoordinatorResponse | FindCoordinatorResponse.Coordinator
    ) -> int | ClientError:
        if answer.error_code != ErrorCode.NONE:
            return BrokerError(answer.error_code, f"{_NOUNS[self._key_type]} {key}", answer.error_message or None)
        return answer.node_id
