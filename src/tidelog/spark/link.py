"""The synchronous bridge from Spark's code to the client core: one event loop in a thread, which does all the waiting.

    with Link({"bootstrap.servers": "127.0.0.1:9092"}) as link:
        ends = link.latest([("orders", 0)])
        for chunk in link.fetch("orders", 0, 0, ends["orders", 0]):
            ...

Not for many threads at once, and not to be pickled or forked: each process makes its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Self, TypeAlias, TypeVar

from tidelog.client.brokers import describe_log_dirs
from tidelog.client.cluster import Cluster
from tidelog.client.epoch_ends import EpochEnd, epoch_end
from tidelog.client.errors import ClientError, raise_first
from tidelog.client.group_offsets import Committed, commit_offsets, fetch_offsets
from tidelog.client.metadata import ClusterMetadata, TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.uuids import ZERO_UUID, uuid_to_text
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.loop import new_event_loop
from tidelog.runtime.net import OsNet
from tidelog.spark.client_config import LEVELS, Isolation, parse_config
from tidelog.spark.pump import Chunk, Pump, Stretch

T = TypeVar("T")
At: TypeAlias = tuple[str, int]
"""(topic, partition)"""


class Link:
    """A context manager. `patient`: wait for a broker that does not answer, also when none ever has; a planner leaves
    it off, so that a mistyped address shows at once."""

    def __init__(self, config: Mapping[str, str], *, patient: bool = False) -> None:
        parsed = parse_config(config)
        self._limits = parsed.limits
        options = parsed.options
        if patient:
            options = replace(options, bootstrap_timeout_s=options.api_timeout_s)
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidelog-link", daemon=True)
        self._thread.start()
        self._cluster = self._run(_make_cluster(parsed.bootstrap, options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            self._run(self._cluster.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # Topics

    def topics(self) -> list[str]:
        """The names of all topics that are not internal."""
        found = self._run(self._cluster.all_topics())
        return sorted(name for name, topic in found.topics.items() if not topic.is_internal)

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partition numbers of each topic, asked for now; a topic that is not there is a MissingError."""
        names = sorted(set(topics))
        found = self._fresh(names)
        return {name: sorted(found.topic(name).partitions) for name in names}

    def existing(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The same without those that are not there."""
        names = sorted(set(topics))
        found = self._fresh(names)
        return {name: sorted(found.topic(name).partitions) for name in names if not _is_missing(found, name)}

    def topic_ids(self, topics: Iterable[str], *, ask: bool = True) -> dict[str, str]:
        """The ids as text; a broker that knows none (before Kafka 2.8) leaves its topics out. `ask=False`: as they were
        when the partitions were asked for."""
        names = sorted(set(topics))
        found = self._fresh(names) if ask else self._cluster.metadata
        ids = {name: found.topic(name).topic_id for name in names}
        return {name: uuid_to_text(value) for name, value in ids.items() if value != ZERO_UUID}

    # Offsets

    def earliest(self, partitions: Iterable[At]) -> dict[At, int]:
        return self._list(dict.fromkeys(partitions, EARLIEST), "read_uncommitted")

    def latest(self, partitions: Iterable[At], isolation: Isolation = "read_committed") -> dict[At, int]:
        """The end of what can be read: the last stable offset, or the high watermark for read_uncommitted."""
        return self._list(dict.fromkeys(partitions, LATEST), isolation)

    def at_times(self, times: Mapping[At, int]) -> dict[At, int | None]:
        """The first offset whose record has that time (ms) or a later one; None when there is none."""
        found = self._list(times, "read_uncommitted")
        return {at: None if offset < 0 else offset for at, offset in found.items()}

    def sizes(self, partitions: Iterable[At]) -> dict[At, int]:
        """The bytes of each partition on its broker's disk (the largest replica), where brokers tell."""
        wanted = set(partitions)
        sizes: dict[At, int] = {}
        for answer in self._run(describe_log_dirs(self._cluster)).values():
            if isinstance(answer, ClientError):
                continue
            for directory in answer:
                for replica in directory.replicas:
                    if replica.at in wanted and not replica.is_future:
                        sizes[replica.at] = max(sizes.get(replica.at, 0), replica.size_bytes)
        return sizes

    def epoch_end(self, topic: str, partition: int, leader_epoch: int) -> EpochEnd:
        """Where the records of a leader epoch end in the leader's log."""
        return self._run(epoch_end(self._cluster, TopicPartition(topic, partition), leader_epoch))

    # Groups

    def commit(self, group: str, offsets: Mapping[At, int]) -> None:
        """Commit for a group that has no members; raises the first error of a partition."""
        wanted = {TopicPartition(*at): Committed(offset) for at, offset in offsets.items()}
        raise_first(self._run(commit_offsets(self._cluster, group, wanted)).values())

    def committed(self, group: str) -> dict[At, int]:
        return {at: found.offset for at, found in self._run(fetch_offsets(self._cluster, group)).items()}

    # Records

    def fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        isolation: Isolation = "read_committed",
        *,
        topic_id: str | None = None,
        silence_s: float = 120.0,
        max_bytes: int | None = None,
    ) -> Iterator[Chunk]:
        """Whole raw batches that cover the offsets from start to before end, in order: control and aborted batches are
        in, and the first and last batch may reach over the bounds. The next chunk is fetched while one is used.

        `topic_id`: TopicChangedError when the topic is another one by now. SilentError when nothing comes for
        `silence_s`; BrokerError (OFFSET_OUT_OF_RANGE) when an offset is not in the log any more. `max_bytes`: of a
        chunk, but for one larger batch.
        """
        at = TopicPartition(topic, partition)
        limits = replace(self._limits, isolation_level=LEVELS[isolation])
        if max_bytes is not None:
            limits = replace(limits, partition_max_bytes=max_bytes)
        pump = Pump(self._cluster, Stretch(at, start, end, topic_id), limits, silence_s)
        self._run(pump.start())
        try:
            while (chunk := self._run(pump.next())) is not None:
                yield chunk
        finally:
            if not self._loop.is_closed():
                self._run(pump.stop())

    # Anything else

    def ask(self, question: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """What a coroutine finds out with the client core."""
        return self._run(question(self._cluster))

    # Parts

    def _fresh(self, names: list[str]) -> ClusterMetadata:
        async def ask() -> ClusterMetadata:
            for name in names:
                self._cluster.forget_topic(name)
            await self._cluster.ensure_topics(names)
            found = self._cluster.metadata
            for name in names:
                if not _is_missing(found, name):
                    found.topic(name)  # one that is being created, say, is asked for again
            return found

        return self._run(self._cluster.retrying(ask))

    def _list(self, wanted: Mapping[At, int], isolation: Isolation) -> dict[At, int]:
        asked = {TopicPartition(*at): what for at, what in wanted.items()}
        found = self._run(list_offsets(self._cluster, asked, isolation_level=LEVELS[isolation]))
        return {at: result.offset for at, result in found.items()}

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _is_missing(found: ClusterMetadata, name: str) -> bool:
    return name not in found.topics or found.topics[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _make_cluster(bootstrap: str, options: Any) -> Cluster:
    return Cluster(OsNet(), SystemClock(), bootstrap, random=Random(), options=options)
