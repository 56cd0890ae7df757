"""Encoded batches on their way to the brokers: in order per partition, beside each other for the rest, within a bound.
Runs on a Link's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce
from tidelog.client.transactional import Identity, Transactions
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.receipts import Span

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class Outlet:
    """With a transaction, partitions join it before their first batch."""

    def __init__(self, cluster: Cluster, options: SinkOptions, transaction: tuple[str, Identity] | None = None) -> None:
        self._cluster = cluster
        self._acks = options.acks
        self._limit = options.buffer_bytes
        self._transaction = transaction
        self._transactions = Transactions(cluster)
        self._joined: set[TopicPartition] = set()
        self._tails: dict[TopicPartition, asyncio.Task[None]] = {}
        self._bytes = 0
        self._room = asyncio.Event()
        self._error: BaseException | None = None
        self.spans: dict[TopicPartition, Span] = {}
        self.records = 0

    async def put(self, batches: Sequence[tuple[TopicPartition, Sequence[bytearray]]]) -> None:
        """Returns when there is room for more; raises what befell an earlier batch."""
        await self._join([at for at, _ in batches])
        for at, parts in batches:
            size = sum(map(len, parts))
            self._bytes += size
            before = self._tails.get(at)
            self._tails[at] = asyncio.create_task(self._send(at, parts, size, before))
        while self._bytes > self._limit and self._error is None:
            self._room.clear()
            await self._room.wait()
        self._raise()

    async def drain(self) -> None:
        """Until the brokers have all of it."""
        await asyncio.gather(*self._tails.values())
        self._raise()

    async def stop(self) -> None:
        """Gives up what is under way."""
        for task in self._tails.values():
            task.cancel()
        await asyncio.gather(*self._tails.values(), return_exceptions=True)

    async def _join(self, partitions: Sequence[TopicPartition]) -> None:
        fresh = [at for at in partitions if at not in self._joined]
        if self._transaction is not None and fresh:
            await self._transactions.add(*self._transaction, fresh)
        self._joined.update(fresh)

    async def _send(
        self, at: TopicPartition, batches: Sequence[bytearray], size: int, before: asyncio.Task[None] | None
    ) -> None:
        try:
            if before is not None:
                await before
            for batch in batches:
                if self._error is not None:
                    return  # behind a batch that failed nothing may follow
                await self._send_one(at, batch)
        except ClientError as error:
            self._error = self._error or error
        finally:
            self._bytes -= size
            self._room.set()

    async def _send_one(self, at: TopicPartition, batch: bytearray) -> None:
        name = None if self._transaction is None else self._transaction[0]
        try:
            produced = await produce(self._cluster, at, batch, acks=self._acks, transactional_id=name)
        except BrokerError as error:
            if error.code in _TOO_LARGE:
                error.add_note(f"a batch of {len(batch)} bytes; kafka.batch.size or max.message.bytes changes that")
            raise
        count = read_header(batch).record_count
        self.records += count
        if self._transaction is None:
            return
        if produced.base_offset < 0:
            # A retry whose first answer was lost long ago. The task is tried again in a transaction of its own.
            raise ClientError(f"{at}: the broker has the batch, and does not say where")
        last = produced.base_offset + count - 1
        span = self.spans.get(at) or Span(*at, produced.base_offset, last, 0)
        self.spans[at] = span._replace(last=last, records=span.records + count)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
