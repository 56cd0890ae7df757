"""What a task tells the driver of its open transaction, and the driver's decision about an epoch. Both as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from tidelog.client.metadata import TopicPartition
from tidelog.client.transactional import Identity


class Span(NamedTuple):
    """Where a task's records lie in a partition; other producers' records may lie between."""

    topic: str
    partition: int
    first: int
    last: int
    records: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Receipt(WriterCommitMessage):  # type: ignore[misc]  # pyspark has no types here
    """A transaction that waits for its end. One without spans was never begun."""

    sink: str
    """Who writes: the query's id, the application's, or one that was made for this write."""
    transactional_id: str
    identity: Identity
    spans: tuple[Span, ...]

    @property
    def records(self) -> int:
        return sum(span.records for span in self.spans)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.transactional_id,
            "producer": list(self.identity),
            "spans": [list(one) for one in self.spans],
        }

    @classmethod
    def from_json(cls, sink: str, found: dict[str, Any]) -> Receipt:
        spans = tuple(Span(*one) for one in found["spans"])
        return cls(sink, found["id"], Identity(*found["producer"]), spans)


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark has no types here
    """What a task has written without a transaction."""

    records: int


@dataclass(frozen=True, slots=True)
class Decision:
    """These transactions are the epoch. Once it is in the log they are committed, whatever happens."""

    epoch: int
    receipts: tuple[Receipt, ...]

    def to_bytes(self) -> bytes:
        found = {"version": 1, "epoch": self.epoch, "transactions": [one.to_json() for one in self.receipts]}
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, sink: str, data: bytes) -> Decision:
        found = json.loads(data)
        if found["version"] != 1:
            raise ValueError(f"a decision of version {found['version']}; this release knows version 1")
        return cls(found["epoch"], tuple(Receipt.from_json(sink, one) for one in found["transactions"]))


def receipts_of(messages: Sequence[object]) -> tuple[Receipt, ...]:
    """Those of tasks that were chosen; without transactions there are none."""
    return tuple(one for one in messages if isinstance(one, Receipt))
