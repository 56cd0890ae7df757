"""Twenty kills -9 under load, with real clients, a real process and a real disk: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tidelog.testing import Broker
from tools.ports import free_port

KILLS = 20
PARTITIONS = 3
KEYS = 6
TOPIC = "load"
GROUP = "committers"
WAIT_S = 50.0


class Load:
    """What the clients were told. Each key belongs to one producer and one partition, its values are numbered."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.over = threading.Event()
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failures: list[str] = []
        self.sent = 0
        self.committed: dict[int, int] = {}
        self.seen: dict[tuple[int, int], bytes] = {}

    def delivered(self, partition: int, offset: int, value: bytes) -> None:
        known = self.acknowledged.setdefault((partition, offset), value)
        assert known == value, f"partition {partition}, offset {offset} was given to {known!r} and to {value!r}"

    def saw(self, message: Message) -> None:
        place = (message.partition() or 0, message.offset() or 0)
        value = message.value() or b""
        if self.seen.setdefault(place, value) != value:
            self.failures.append(f"{place} was {self.seen[place]!r} and is {value!r}")

    # one thread each

    def produce_confluent(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"confluent: {error}")
            else:
                self.delivered(message.partition() or 0, message.offset() or 0, message.value() or b"")

        number = 0
        while not self.over.is_set():
            for key in range(KEYS):
                value = f"c{key}/{number}".encode()
                producer.produce(TOPIC, value, f"c{key}", partition=key % PARTITIONS, on_delivery=on_delivery)
                self.sent += 1
            number += 1
            producer.poll(0.005)
        if producer.flush(WAIT_S):
            self.failures.append("confluent: not everything was delivered")

    def produce_aiokafka(self) -> None:
        asyncio.run(self._produce_aiokafka())

    async def _produce_aiokafka(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.servers, enable_idempotence=True, retry_backoff_ms=50)
        await producer.start()
        waiting = []
        number = 0
        while not self.over.is_set():
            for key in range(2):
                value = f"a{key}/{number}".encode()
                waiting.append((value, await producer.send(TOPIC, value, f"a{key}".encode(), partition=key)))
                self.sent += 1
            number += 1
            await asyncio.sleep(0.01)
        for value, future in waiting:
            told = await asyncio.wait_for(future, WAIT_S)
            self.delivered(told.partition, told.offset, value)
        await producer.stop()

    def consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        # Not by subscribing: after each kill the group would be busy with itself, and few commits would be tried.
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while not self.over.is_set():
            messages = [message for message in consumer.consume(200, timeout=0.1) if message.error() is None]
            for message in messages:
                self.saw(message)
            if not messages:
                continue
            try:
                for told in consumer.commit(asynchronous=False) or []:
                    if told.error is None:
                        self.committed[told.partition] = told.offset
            except KafkaException:
                continue  # nobody knows: it is not counted
        consumer.close()


def read_all(servers: str, load: Load) -> dict[int, list[bytes]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    values: dict[int, list[bytes]] = defaultdict(list)
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, "the log cannot be read to its end"
        for message in consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition() or 0)
                continue
            partition = message.partition() or 0
            assert message.offset() == len(values[partition]), "an offset is missing"
            values[partition].append(message.value() or b"")
            load.saw(message)
    consumer.close()
    return values


def positions(servers: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    found = {told.partition: told.offset for told in consumer.committed(asked, timeout=30)}
    consumer.close()
    return found


def running(functions: list[Callable[[], None]], load: Load) -> list[threading.Thread]:
    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            load.failures.append(f"{function.__name__}: {error!r}")

    threads = [
        threading.Thread(target=guarded, args=(function,), name=function.__name__, daemon=True)
        for function in functions
    ]
    for thread in threads:
        thread.start()
    return threads


def where(thread: threading.Thread) -> str:
    return "".join(traceback.format_stack(sys._current_frames()[thread.ident or 0])[-2:])


def check(load: Load, values: dict[int, list[bytes]], found: dict[int, int]) -> None:
    for (partition, offset), value in load.acknowledged.items():
        assert offset < len(values[partition]), f"{value!r}, acknowledged at {partition}/{offset}, is lost"
        assert values[partition][offset] == value, f"{value!r} is not at {partition}/{offset}"
    for partition, there in values.items():
        assert len(set(there)) == len(there), f"partition {partition} holds a record twice"
        last: dict[str, int] = {}
        for value in there:
            key, number = value.decode().split("/")
            assert int(number) == last.get(key, -1) + 1, f"partition {partition}: {value!r} follows {last.get(key)}"
            last[key] = int(number)
    for partition, offset in load.committed.items():
        assert found[partition] >= offset, f"partition {partition}: {offset} was committed, {found[partition]} is there"


@pytest.mark.timeout(300)  # twenty starts of a node, then waits of WAIT_S: seconds alone, minutes beside others
def test_twenty_kills_under_load_lose_nothing_acknowledged(tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDELOG_KILL_SEED", random.randrange(10**6)))
    print(f"again: TIDELOG_KILL_SEED={seed}")
    chance = random.Random(seed)
    config = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    broker = Broker(config, process=True, data=tmp_path).start()
    servers = broker.bootstrap_servers
    broker.create_topic(TOPIC, partitions=PARTITIONS, config={"segment.bytes": "1048576"})
    load = Load(servers)
    threads = running([load.produce_confluent, load.produce_aiokafka, load.consume], load)
    try:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.05, 0.8))
            broker.kill()
            broker = Broker(config, process=True, data=tmp_path).start()
        time.sleep(0.5)
        load.over.set()
        deadline = time.monotonic() + WAIT_S
        for thread in threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        hanging = {thread.name: where(thread) for thread in threads if thread.is_alive()}
        assert not hanging, f"{hanging}; of {load.sent} sent {len(load.acknowledged)} were acknowledged\n{broker.log}"
        values, found = read_all(servers, load), positions(servers)
    finally:
        load.over.set()
        broker.stop()
    assert not load.failures, load.failures[:3]
    assert len(load.acknowledged) == load.sent > 500
    assert load.committed, "no commit was acknowledged: the run proves nothing"
    check(load, values, found)
