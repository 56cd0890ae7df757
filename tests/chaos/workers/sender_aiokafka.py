"""Idempotent sends of aiokafka."""

from __future__ import annotations

import asyncio
from collections import deque

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from tests.chaos.history import Op, Send
from tests.chaos.workers.base import Worker

IN_FLIGHT_MAX = 500
Waiting = deque[tuple[Op, Send, asyncio.Future[RecordMetadata]]]


class AioSender(Worker):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.task.servers, enable_idempotence=True, retry_backoff_ms=50, request_timeout_ms=60_000
        )
        await producer.start()
        waiting: Waiting = deque()
        number = 0
        while not self.stopping.is_set():
            for partition in range(self.task.partitions):
                if len(waiting) < IN_FLIGHT_MAX:
                    send = Send(self.key(partition), f"{self.task.process}:{number}")
                    op = self.recorder.begin(send)
                    future = await producer.send(self.task.topic, send.value.encode(), partition=partition)
                    waiting.append((op, send, future))
                    number += 1
            while waiting and waiting[0][2].done():
                await self._note(waiting)
            await asyncio.sleep(self.task.pause_s)
        while waiting:
            await self._note(waiting)
        await producer.stop()

    async def _note(self, waiting: Waiting) -> None:
        op, send, future = waiting.popleft()
        try:
            told = await future
        except Exception as error:
            self.recorder.end(op, "unknown", repr(error))
        else:
            send.offset = told.offset if told.offset >= 0 else None
            self.recorder.end(op, "ok")
