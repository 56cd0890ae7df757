"""What a task does: Arrow batches to record batches, by target partition, and those to the brokers.

Rows never become Python objects: columns are placed and encoded as a whole. The encoding of some rows goes on while
batches of earlier ones are under way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactional import Identity, Transactions, new_identity
from tidelog.protocol.batch import TRANSACTIONAL, increment_sequence
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.encoding import encode
from tidelog.protocol.records.from_arrow import from_arrow
from tidelog.protocol.records.placing import divide, place, spread
from tidelog.runtime.clock import SystemClock
from tidelog.spark.link import Link
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.outlet import Outlet
from tidelog.spark.sink.receipts import Receipt, Written
from tidelog.spark.sink.shape import RowError

_LOG: Final = logging.getLogger(__name__)
ALL: Final = -1
Encoded = list[tuple[TopicPartition, list[bytearray]]]
GATHER_BYTES: Final = 4 * 1024 * 1024
"""Rows are placed together up to about so much: small batches of records cost more than large ones."""


def write_rows(
    rows: Iterable[pa.RecordBatch], options: SinkOptions, names: tuple[str, ...], sink: str, attempt: str
) -> Receipt | Written:
    """All rows of a task. With exactly_once they lie in a transaction that is left open, for the driver to end."""
    parts = gathered(rows)
    first = next(parts, None)
    name = f"{options.prefix}{sink}.task.{attempt}"
    if first is None:
        return Receipt(sink, name, Identity(-1, -1), ()) if options.delivery == "exactly_once" else Written(0)
    parts = chain([first], parts)
    with Link(options.kafka, patient=True) as link:
        if options.delivery == "at_least_once":
            identity = link.ask(new_identity) if options.acks == ALL else None
            outlet = link.ask(lambda cluster: _outlet(cluster, options))
            _pour(parts, link, Encoder(link, options, names, identity), outlet)
            return Written(outlet.records)
        identity = link.ask(lambda cluster: Transactions(cluster).begin(name, options.transaction_timeout_ms))
        outlet = link.ask(lambda cluster: _outlet(cluster, options, (name, identity)))
        try:
            _pour(parts, link, Encoder(link, options, names, identity, transactional=True), outlet)
        except BaseException:
            _abort(link, name, identity)
            raise
        return Receipt(sink, name, identity, tuple(outlet.spans[at] for at in sorted(outlet.spans)))


async def _outlet(cluster: Cluster, options: SinkOptions, transaction: tuple[str, Identity] | None = None) -> Outlet:
    return Outlet(cluster, options, transaction)


def _abort(link: Link, name: str, identity: Identity) -> None:
    """Readers need not wait until the transaction of a task that failed runs out of time."""
    try:
        link.ask(lambda cluster: Transactions(cluster).end(name, identity, committed=False))
    except ClientError as error:
        _LOG.warning("the transaction of a task that failed will run out of time: %s", error)


def _pour(parts: Iterable[pa.RecordBatch], link: Link, encoder: Encoder, outlet: Outlet) -> None:
    """Everything, until the brokers have it."""
    try:
        for part in parts:
            for encoded in encoder.encode(part):
                link.ask(lambda _, encoded=encoded: outlet.put(encoded))  # type: ignore[misc]
        link.ask(lambda _: outlet.drain())
    except BaseException:
        link.ask(lambda _: outlet.stop())
        raise


def gathered(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are not small."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class Encoder:
    """Counts sequences per partition for the producer whose batches these are."""

    def __init__(
        self,
        link: Link,
        options: SinkOptions,
        names: tuple[str, ...],
        identity: Identity | None = None,
        *,
        transactional: bool = False,
        random: Random | None = None,
    ) -> None:
        self._link = link
        self._options = options
        self._names = {name.lower(): name for name in names}
        self._identity = identity
        self._attributes = TRANSACTIONAL if transactional else 0
        self._sequences: dict[TopicPartition, int] = {}
        self._counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}
        self._random = random or Random()

    def encode(self, rows: pa.RecordBatch) -> Iterator[Encoded]:
        """A list per topic."""
        for topic, part in self._by_topic(rows):
            columns = from_arrow(self._record_columns(part))
            count = self._partitions(topic)
            places = place(columns, count, self._given(topic, part, count))
            self._place_rest(topic, columns, places, count)
            yield [
                (at := TopicPartition(topic, partition), self._batches(at, records))
                for partition, records in divide(columns, places)
            ]

    def _batches(self, at: TopicPartition, records: Columns) -> list[bytearray]:
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = increment_sequence(sequence, records.count)
        who = {}
        if self._identity is not None:
            producer_id, epoch = self._identity
            who = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        options = self._options
        return encode(records, batch_bytes=options.batch_bytes, codec=options.codec, attributes=self._attributes, **who)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, rows
            return
        topics = rows.column(self._names["topic"])
        if topics.null_count:
            raise RowError("a row has null as its topic; give the option topic, or a topic for each row")
        found = pc.unique(topics).to_pylist()
        for topic in found:
            yield topic, rows if len(found) == 1 else rows.filter(pc.equal(topics, topic))

    def _record_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        wanted = [name for name in ("key", "value", "headers") if name in self._names]
        columns = [rows.column(self._names[name]) for name in wanted]
        return pa.record_batch([*columns, self._times(rows)], [*wanted, "timestamp"])

    def _times(self, rows: pa.RecordBatch) -> pa.Array:
        now = pa.scalar(SystemClock().wall_ms(), pa.int64())
        name = self._options.timestamp_column
        if name is None:
            return pa.repeat(now, rows.num_rows)
        (given,) = (rows.column(column) for column in rows.schema.names if column.lower() == name.lower())
        times = given.cast(pa.timestamp("ms", "UTC"), safe=False)  # Spark's are in microseconds
        return pc.fill_null(times.cast(pa.int64()), now)

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._link.ask(lambda cluster: _partition_count(cluster, topic))
        return self._counts[topic]

    def _given(self, topic: str, rows: pa.RecordBatch, count: int) -> Any:
        if "partition" not in self._names:
            return None
        column = rows.column(self._names["partition"])
        bounds = pc.min_max(column).as_py()
        if bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] >= count):
            wrong = bounds["min"] if bounds["min"] < 0 else bounds["max"]
            raise RowError(f"a row names partition {wrong}; topic {topic} has the partitions 0 to {count - 1}")
        wide = pc.fill_null(column.cast(pa.int64()), -1)
        return memoryview(wide.buffers()[1]).cast("q")[wide.offset : wide.offset + len(wide)]

    def _place_rest(self, topic: str, columns: Columns, places: Any, count: int) -> None:
        """Rows without a key and a partition fill a batch of one partition, then of the next."""
        first = self._sticky.setdefault(topic, self._random.randrange(count))
        row_bytes = max(1, len(memoryview(columns.data)) // max(1, columns.count))
        blocks = spread(columns, places, first, max(1, self._options.batch_bytes // row_bytes), count)
        self._sticky[topic] = (first + blocks) % count


async def _partition_count(cluster: Cluster, topic: str) -> int:
    return len((await cluster.topic(topic, auto_create=True)).partitions)
