"""`redrive`: dead letters go back to their flow, through its retry topic, each once.

They go there and not to the topic they came from: the record is in the log already, and lands under the coordinates
that it has there. A letter and its record in the trail are one transaction, under a transactional id of the flow's own:
who comes later ends what a killed command has left open, then reads the trail. A letter that dies again is another one,
and may be sent back again.
"""

from __future__ import annotations

import getpass
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce
from tidelog.client.transactional import Identity, Transactions
from tidelog.kernel.errors import TidelogError
from tidelog.kernel.ports import Clock
from tidelog.protocol.batch import TRANSACTIONAL, Record, RecordInput, build_batch
from tidelog.protocol.partitioner import partition_for_key
from tidelog.spark.link import Link
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters import trail
from tidelog.spark.pipeline.letters.checkpoints import query_of
from tidelog.spark.pipeline.letters.filters import Wanted
from tidelog.spark.pipeline.letters.headers import Letter, block, letter_of
from tidelog.spark.pipeline.letters.options import FOREIGN, DeadLetters
from tidelog.spark.pipeline.letters.reading import Place, records
from tidelog.spark.pipeline.model import Pipeline

CHUNK: Final = 500
CHUNK_BYTES: Final = 512 * 1024
_TIMEOUT_MS: Final = 60_000
_KEPT: Final = (
    *(H.TOPIC, H.PARTITION, H.OFFSET, H.CONNECTOR, H.STAGE, H.CLASS, H.EXCEPTION, H.MESSAGE, H.FLOW, H.QUERY),
    *(H.REASON, H.TIMESTAMP, H.TIMESTAMP_TYPE),
)
"""What a letter goes on saying of itself."""


class RedriveError(TidelogError):
    """Nothing can be sent back; the message says why."""


@dataclass(slots=True, kw_only=True)
class Redriven:
    """What a run has come to."""

    run: str
    dry_run: bool
    read: int = 0
    sent: Counter[str] = field(default_factory=Counter)  # by reason; with dry_run those that would be
    before: int = 0  # meant, and sent back earlier
    not_meant: int = 0  # by the filter
    others: int = 0  # of an earlier checkpoint of the flow, or no letters of the flow at all

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "dry_run": self.dry_run,
            "read": self.read,
            "sent": self.sent.total(),
            "by_reason": dict(sorted(self.sent.items())),
            "sent_before": self.before,
            "not_meant": self.not_meant,
            "others": self.others,
        }


class Redrive:
    """One run of the command. `step` is told of each point that a crash may come at; for tests."""

    def __init__(
        self,
        pipeline: Pipeline,
        flow: str,
        wanted: Wanted,
        clock: Clock,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        tell: Callable[[int, int], None] = lambda read, sent: None,
        step: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._flow, self._letters, self._query = _of(pipeline, flow)
        self._kafka = {**self._flow.kafka, "bootstrap.servers": pipeline.bootstrap_servers}
        self._id = f"tidelog-redrive-{pipeline.name}.{flow}"
        self._wanted = wanted
        self._clock = clock
        self._limit = limit
        self._tell = tell
        self._step = step
        self._identity: Identity | None = None
        self._who = f"{getpass.getuser()}@{socket.gethostname()}"
        self.done = Redriven(run=secrets.token_hex(6), dry_run=dry_run)

    def run(self) -> Redriven:
        with Link(self._kafka) as link:
            if not self.done.dry_run:
                trail.ensure(link, self._letters.topic)
                # Whoever was here before us can send nothing any more, and what it left open is aborted: only then the
                # trail is all there is.
                self._identity = link.ask(lambda cluster: Transactions(cluster).begin(self._id, _TIMEOUT_MS))
            gone = trail.sent(link, self._letters.topic)
            topic_id = link.topic_ids([self._letters.topic]).get(self._letters.topic, "")
            for chunk in _chunks(self._meant(link, gone)):
                if not self.done.dry_run:
                    self._send(link, chunk, topic_id)
                self.done.sent.update(letter.text(H.REASON) for _, _, letter in chunk)
                self._tell(self.done.read, self.done.sent.total())
        return self.done

    def _meant(self, link: Link, gone: frozenset[tuple[int, int]]) -> Iterator[tuple[Place, Record, Letter]]:
        found = 0
        for place, record in records(link, self._letters.topic):
            if self._limit is not None and found >= self._limit:
                return
            self.done.read += 1
            letter = letter_of(record)
            if letter is None or not letter.is_of(self._flow.name, self._query) or letter.text(H.REASON) == FOREIGN:
                self.done.others += 1
            elif not self._wanted.takes(letter):
                self.done.not_meant += 1
            elif (place.partition, place.offset) in gone:
                self.done.before += 1
            else:
                found += 1
                yield place, record, letter

    def _send(self, link: Link, chunk: list[tuple[Place, Record, Letter]], topic_id: str) -> None:
        partitions = len(link.partitions([self._letters.retry_topic])[self._letters.retry_topic])
        batches: dict[TopicPartition, list[RecordInput]] = {}
        now_ms = self._clock.wall_ms()
        trail_at = TopicPartition(trail.trail_topic(self._letters.topic), 0)
        for place, record, letter in chunk:
            at = TopicPartition(self._letters.retry_topic, _partition(letter, partitions))
            batches.setdefault(at, []).append(_again(record, letter, now_ms))
            batches.setdefault(trail_at, []).append(self._trace(place, topic_id, now_ms))
        link.ask(lambda cluster: self._transaction(cluster, batches))

    async def _transaction(self, cluster: Cluster, batches: dict[TopicPartition, list[RecordInput]]) -> None:
        transactions = Transactions(cluster)
        identity = self._identity = await transactions.begin(self._id, _TIMEOUT_MS, after=self._identity)
        await transactions.add(self._id, identity, sorted(batches))
        for at, inputs in sorted(batches.items()):
            batch = build_batch(
                inputs,
                attributes=TRANSACTIONAL,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=0,
            )
            await produce(cluster, at, batch, transactional_id=self._id)
            self._step("written")
        await transactions.end(self._id, identity, committed=True)
        self._step("committed")

    def _trace(self, place: Place, topic_id: str, now_ms: int) -> RecordInput:
        step = trail.Step(
            **place._asdict(),
            who=self._who,
            at_ms=now_ms,
            run=self.done.run,
            filter=self._wanted.as_json(),
            query=self._query,
        )
        return RecordInput(trail.key_of(topic_id, place), msgspec.json.encode(step), now_ms)


def _of(pipeline: Pipeline, name: str) -> tuple[Ingest, DeadLetters, str]:
    flow = pipeline.flows.get(name)
    with_letters = [
        other.name for other in pipeline.flows.values() if isinstance(other, Ingest) and other.dead_letters is not None
    ]
    if not isinstance(flow, Ingest) or flow.dead_letters is None:
        what = "is no flow" if flow is None else "has no dead letters"
        raise RedriveError(f"{name!r} {what}; there are {', '.join(with_letters) or 'none'}")
    query = query_of(pipeline.work / "checkpoints" / name)
    if query is None:
        raise RedriveError(f"{name!r} has not run yet: there is no checkpoint in {pipeline.work}")
    return flow, flow.dead_letters, query


def _chunks(
    letters: Iterator[tuple[Place, Record, Letter]],
) -> Iterator[list[tuple[Place, Record, Letter]]]:
    chunk: list[tuple[Place, Record, Letter]] = []
    size = 0
    for one in letters:
        chunk.append(one)
        size += len(one[1].key or b"") + len(one[1].value or b"")
        if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _partition(letter: Letter, partitions: int) -> int:
    if letter.key is not None:
        return partition_for_key(letter.key, partitions)
    return (letter.number(H.PARTITION) or 0) % partitions


def _again(record: Record, letter: Letter, now_ms: int) -> RecordInput:
    """For an attempt at once (no time before which it must not be: clocks differ), with all attempts there are after
    it."""
    said: list[tuple[str, object]] = [(name, letter.said.get(name)) for name in _KEPT]
    said += [
        (H.ATTEMPT, 0),
        (H.AT, now_ms),
        (H.REDRIVEN, (letter.number(H.REDRIVEN) or 0) + 1),
    ]
    return RecordInput(letter.key, letter.value, record.timestamp, (*letter.own, *block(said)))
