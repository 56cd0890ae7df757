"""Transactions of sends and polls by aiokafka: version 1, by another hand."""

from __future__ import annotations

import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import RecordMetadata

from tests.chaos.history import Assign, Op, Poll, Send
from tests.chaos.workers.base import TRANSACTION_MS, Worker
from tests.chaos.workers.transactional import ABORTS

CALL_S = 30.0


class AioMixer(Worker):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        """One life: it ends with the first error that is not an abort on purpose."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.task.servers,
            transactional_id=self.task.transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
            retry_backoff_ms=50,
            request_timeout_ms=10_000,
        )
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.task.servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            retry_backoff_ms=50,
        )
        try:
            await asyncio.wait_for(consumer.start(), CALL_S)
            await asyncio.wait_for(producer.start(), CALL_S)
            places = [TopicPartition(self.task.topic, number) for number in range(self.task.partitions)]
            self.recorder.note(Assign(tuple(self.key(place.partition) for place in places)))
            consumer.assign(places)
            await asyncio.wait_for(consumer.seek_to_beginning(*places), CALL_S)
            while not self.stopping.is_set():
                await self._transaction(producer, consumer)
                await asyncio.sleep(self.task.pause_s)
        except (KafkaError, TimeoutError) as error:
            self.recorder.end(self.recorder.begin(), "ok", f"lost: {error!r}")
        os._exit(0)

    async def _transaction(self, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
        op = self.recorder.begin(transactional=True)
        sent: list[tuple[Send, asyncio.Future[RecordMetadata]]] = []
        try:
            await producer.begin_transaction()
            for step in range(self.chance.randint(1, 4)):
                if self.chance.random() < 0.6:
                    sent.append(await self._send(op, step, producer))
                else:
                    await self._poll(op, consumer)
            for send, future in sent:
                told = await asyncio.wait_for(future, CALL_S)
                send.offset = told.offset if told.offset >= 0 else None
            if self.chance.random() < ABORTS:
                self.recorder.decide(op)
                await asyncio.wait_for(producer.abort_transaction(), CALL_S)
                return self.recorder.end(op, "fail", "on purpose")
        except (KafkaError, TimeoutError) as error:
            # Nobody asked for a commit: it is not committed, whatever happens now.
            self.recorder.decide(op)
            self.recorder.end(op, "fail", repr(error))
            raise
        return await self._commit(op, producer)

    async def _commit(self, op: Op, producer: AIOKafkaProducer) -> None:
        self.recorder.decide(op)
        try:
            await asyncio.wait_for(producer.commit_transaction(), CALL_S)
        except (KafkaError, ProducerFenced, TimeoutError) as error:
            self.recorder.end(op, "unknown", repr(error))
            raise
        self.recorder.end(op, "ok")

    async def _send(self, op: Op, step: int, producer: AIOKafkaProducer) -> tuple[Send, asyncio.Future[RecordMetadata]]:
        partition = self.chance.randrange(self.task.partitions)
        send = Send(self.key(partition), f"{self.task.process}:{op.number}.{step}")
        op.actions.append(send)
        self.recorder.write(op)
        return send, await producer.send(self.task.topic, send.value.encode(), partition=partition)

    async def _poll(self, op: Op, consumer: AIOKafkaConsumer) -> None:
        found = await consumer.getmany(timeout_ms=20, max_records=20)
        for place, messages in found.items():
            for message in messages:
                op.actions.append(Poll(self.key(place.partition), (message.value or b"").decode(), message.offset))
        self.recorder.write(op)
