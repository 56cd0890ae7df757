"""Incremental fetch sessions (KIP-227): a consumer of many partitions names only what changed, and is told only that.

Owns the sessions and what each remembers of its partitions; reading is the business of apis/fetch.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from tidelog.broker.ledger import SESSION_PARTITIONS_MAX, Resource
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
_TOPIC_IDS_SINCE: Final = 13


QUIET: Final = FetchResponse.PartitionData(records=b"")
"""In place of the data of a partition of which an incremental answer has nothing to say."""


class FetchedPartition:
    """One partition of a fetch, and what its session told the client last."""

    __slots__ = ("high_watermark", "index", "log_start_offset", "topic", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: bytes, wanted: FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = wanted.partition
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    @property
    def key(self) -> tuple[str, bytes, int]:
        return self.topic, self.topic_id, self.index


def _flatten(topics: Iterable[FetchRequest.FetchTopic]) -> Iterator[FetchedPartition]:
    for topic in topics:
        for wanted in topic.partitions:
            yield FetchedPartition(topic.topic, topic.topic_id, wanted)


class FetchSession:
    def __init__(
        self, session_id: int, partitions: Iterable[FetchedPartition], now_s: float, *, uses_topic_ids: bool
    ) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.created_s = now_s
        self.used_s = now_s
        self.uses_topic_ids = uses_topic_ids
        self.partitions: OrderedDict[tuple[str, bytes, int], FetchedPartition] = OrderedDict(
            (partition.key, partition) for partition in partitions
        )

    def update(self, request: FetchRequest) -> None:
        for partition in _flatten(request.topics):
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.wanted = partition.wanted
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop((topic.topic, topic.topic_id, index), None)

    def select(self, partition: FetchedPartition, data: FetchResponse.PartitionData) -> bool:
        """Whether the client must hear of this partition; what it hears is remembered."""
        changed = (
            bool(data.records)
            or data.error_code != ErrorCode.NONE
            or data.diverging_epoch.epoch >= 0
            or data.high_watermark != partition.high_watermark
            or data.log_start_offset != partition.log_start_offset
        )
        if data.error_code != ErrorCode.NONE:
            # It must show up again once the error is over, even with nothing new.
            partition.high_watermark = -1
            partition.log_start_offset = -1
        elif changed:
            partition.high_watermark = data.high_watermark
            partition.log_start_offset = data.log_start_offset
            # A later request may have forgotten the partition while this one waited.
            if data.records and partition.key in self.partitions:
                # Those that had data go to the end, so that a full answer does not starve the others.
                self.partitions.move_to_end(partition.key)
        return changed


class Fetching:
    """One fetch: the partitions to read, and how the answer is put together."""

    __slots__ = ("_session", "is_incremental", "partitions")

    def __init__(self, partitions: list[FetchedPartition], session: FetchSession | None, *, incremental: bool) -> None:
        self.partitions = partitions
        self._session = session
        self.is_incremental = incremental
        """The client hears only of partitions that have changed."""

    def respond(self, results: list[FetchResponse.PartitionData]) -> FetchResponse:
        response = FetchResponse(session_id=0 if self._session is None else self._session.session_id)
        topic: FetchResponse.FetchableTopicResponse | None = None
        for partition, data in zip(self.partitions, results, strict=True):
            if data is QUIET:
                continue
            if self._session is not None and not self._session.select(partition, data) and self.is_incremental:
                continue
            if topic is None or topic.topic != partition.topic or topic.topic_id != partition.topic_id:
                topic = FetchResponse.FetchableTopicResponse(topic=partition.topic, topic_id=partition.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
        return response


class FetchSessions:
    def __init__(
        self, random: Random, slots_max: int, eviction_s: float = 120.0, remembered: Resource | None = None
    ) -> None:
        self._random = random
        self._remembered = remembered or Resource("session_partitions", SESSION_PARTITIONS_MAX)
        """The partitions of all sessions: the number of sessions alone bounds nothing."""
        self._slots_max = slots_max
        self._eviction_s = eviction_s
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def advance(self, session: FetchSession, now_s: float) -> None:
        """The session was asked in its epoch: the next one is due."""
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.used_s = now_s
        self._sessions.move_to_end(session.session_id)

    def begin(self, request: FetchRequest, version: int, now_s: float) -> Fetching | ErrorCode:
        epoch = request.session_epoch if version >= 7 else FINAL_EPOCH
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            partitions = list(_flatten(request.topics))
            session = None
            if epoch == INITIAL_EPOCH and partitions:
                session = self._create(partitions, now_s, uses_topic_ids=version >= _TOPIC_IDS_SINCE)
            return Fetching(partitions, session, incremental=False)
        known = self._sessions.get(request.session_id)
        if known is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if known.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if known.uses_topic_ids != (version >= _TOPIC_IDS_SINCE):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        before = len(known.partitions)
        known.update(request)
        self._remembered.used += len(known.partitions) - before
        if not known.partitions:
            self._remove(known.session_id)
            return Fetching([], None, incremental=False)
        if self._remembered.used > self._remembered.limit:
            # The client names all its partitions again, and goes on without a session.
            self._remembered.refused += 1
            self._remove(known.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self.advance(known, now_s)
        return Fetching(list(known.partitions.values()), known, incremental=True)

    def _create(self, partitions: list[FetchedPartition], now_s: float, *, uses_topic_ids: bool) -> FetchSession | None:
        """None when no slot can be had: the client then fetches in full."""
        if len(self._sessions) >= self._slots_max and not self._evict(len(partitions), now_s):
            return None
        if self._remembered.used + len(partitions) > self._remembered.limit:
            self._remembered.refused += 1
            return None
        while (session_id := self._random.randrange(1, 2**31)) in self._sessions:
            pass
        session = FetchSession(session_id, partitions, now_s, uses_topic_ids=uses_topic_ids)
        self._sessions[session_id] = session
        self._remembered.used += len(session.partitions)
        return session

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._remembered.used -= len(session.partitions)

    def _evict(self, newcomer_size: int, now_s: float) -> bool:
        """The one that was idle for long, or else a smaller one that has had its time."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_s - oldest.used_s > self._eviction_s:
            self._remove(oldest.session_id)
            return True
        had_time = [s for s in self._sessions.values() if now_s - s.created_s > self._eviction_s]
        smallest = min(had_time, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= newcomer_size:
            return False
        self._remove(smallest.session_id)
        return True
