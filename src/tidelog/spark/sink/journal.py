"""The state topic: which epoch of a sink was decided last, and which is known to be complete.

One compacted partition. Under a sink's name lies its last decision, written in a transaction of the sink's driver: a
driver that was replaced cannot decide any more. Beside it lies the last epoch whose transactions were all seen
committed; that one only saves work, so anybody may write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, MissingError
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce
from tidelog.client.topics import NewTopic, create_topics
from tidelog.client.transactional import Identity, Transactions
from tidelog.kernel.errors import TidelogError
from tidelog.protocol.batch import TRANSACTIONAL, Record, RecordInput, build_batch, iter_headers, iter_records
from tidelog.protocol.compression import Codec
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.link import Link
from tidelog.spark.sink.markers import marker_commits
from tidelog.spark.sink.receipts import Decision

_CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Each start of a query reads all of it.
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
_TIMEOUT_MS: Final = 60_000
_COMPLETE: Final = "/complete"


class SinkError(TidelogError):
    """The sink cannot go on; the message says what would be lost or doubled."""


class FencedError(SinkError):
    """Another driver of the sink has taken over."""


class Journal:
    """What is known of one sink. `identity` is the driver's: a later one makes every write here fail."""

    def __init__(self, link: Link, topic: str, transactional_id: str, sink: str) -> None:
        self._link = link
        self._at = TopicPartition(topic, 0)
        self._id = transactional_id
        self._sink = sink
        self.identity: Identity | None = None
        self.decision: Decision | None = None
        self.completed = -1

    def load(self) -> None:
        """Fence former drivers of this sink, then read what they decided: no decision can follow the reading."""
        self._link.ask(self._ensure_topic)
        self.identity = self._link.ask(lambda cluster: Transactions(cluster).begin(self._id, _TIMEOUT_MS))
        for record in self._records():
            if record.key == self._sink.encode() and record.value is not None:
                self.decision = Decision.from_bytes(self._sink, record.value)
            elif record.key == (self._sink + _COMPLETE).encode() and record.value is not None:
                self.completed = max(self.completed, int(record.value))

    def resume(self, known: Journal) -> None:
        """Go on with what an earlier epoch has left in this process. Whoever took over since has fenced us."""
        self.identity, self.decision, self.completed = known.identity, known.decision, known.completed

    def decide(self, decision: Decision) -> None:
        self._link.ask(lambda cluster: self._write_decision(cluster, decision))
        self.decision = decision

    def complete(self, epoch: int) -> None:
        self._link.ask(lambda cluster: self._write_complete(cluster, epoch))
        self.completed = epoch

    async def begin(self, cluster: Cluster) -> Identity:
        """A transaction of the driver, unless another one has taken over."""
        try:
            self.identity = await Transactions(cluster).begin(self._id, _TIMEOUT_MS, after=self.identity)
        except BrokerError as error:
            if error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
                raise FencedError(f"another driver of the sink {self._sink} has taken over: {error}") from error
            raise
        return self.identity

    async def add_decision(self, cluster: Cluster, identity: Identity, decision: Decision) -> None:
        """Into a transaction of the driver that is under way."""
        await Transactions(cluster).add(self._id, identity, [self._at])
        batch = build_batch(
            [RecordInput(self._sink.encode(), decision.to_bytes(), cluster.clock.wall_ms())],
            codec=Codec.ZSTD,  # many tasks times many partitions
            attributes=TRANSACTIONAL,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
        )
        await produce(cluster, self._at, batch, transactional_id=self._id)

    async def _write_decision(self, cluster: Cluster, decision: Decision) -> None:
        identity = await self.begin(cluster)
        await self.add_decision(cluster, identity, decision)
        await Transactions(cluster).end(self._id, identity, committed=True)

    async def _write_complete(self, cluster: Cluster, epoch: int) -> None:
        record = RecordInput((self._sink + _COMPLETE).encode(), str(epoch).encode(), cluster.clock.wall_ms())
        await produce(cluster, self._at, build_batch([record]))

    async def _ensure_topic(self, cluster: Cluster) -> None:
        try:
            await cluster.topic(self._at.topic)
            return
        except MissingError:
            new = NewTopic(name=self._at.topic, partitions=1, replication_factor=-1, configs=_CONFIGS)
        (result,) = (await create_topics(cluster, [new])).values()
        if isinstance(result, BrokerError) and result.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise result
        await cluster.topic(self._at.topic, auto_create=True)

    def _records(self) -> Iterator[Record]:
        """Those of transactions that were committed. Not by the last stable offset: that may stand still for a
        transaction of another sink, whereas all of this sink's have their markers since it has been fenced."""
        start = self._link.earliest([self._at])[self._at]
        end = self._link.latest([self._at], "read_uncommitted")[self._at]
        waiting: dict[int, list[Record]] = {}
        for chunk in self._link.fetch(*self._at, start, end, "read_uncommitted"):
            for position, header in iter_headers(chunk.data):
                batch = chunk.data[position : position + header.size]
                committed = marker_commits(batch, header)
                if committed is not None:
                    done = waiting.pop(header.producer_id, [])
                    yield from done if committed else ()
                elif header.is_transactional and not header.is_control:
                    waiting.setdefault(header.producer_id, []).extend(iter_records(batch, header))
                elif not header.is_control:
                    yield from iter_records(batch, header)
