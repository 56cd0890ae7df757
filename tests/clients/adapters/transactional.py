"""Transactional producers of every library, each with its own calls and under its own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import aiokafka
import confluent_kafka as ck
import kafka
import kafka.errors
from aiokafka import errors as aio_errors

from tests.clients.adapters.aio import Aiokafka
from tests.clients.adapters.confluent import ConfluentConsumer, ConfluentKafka
from tests.clients.adapters.java import Java, JavaConsumer
from tests.clients.adapters.kafka_python import KafkaPython
from tests.clients.model import PATIENCE_S, Client, Consumer, Partition, Refused

_FENCED = 90


class Transactional(Protocol):
    def begin(self) -> None: ...
    def send(self, partition: Partition, values: Sequence[bytes]) -> None: ...
    def send_offsets(self, offsets: Mapping[Partition, int], group: str, consumer: Consumer) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def transactional(client: Client, transactional_id: str) -> Transactional:
    """A producer that has its producer id: who had it before is fenced."""
    match client:
        case ConfluentKafka():
            return _Confluent(client, transactional_id)
        case KafkaPython():
            return _KafkaPython(client, transactional_id)
        case Aiokafka():
            return _Aiokafka(client, transactional_id)
        case Java():
            return _Java(client, transactional_id)
    raise AssertionError(client.name)


class _Confluent:
    def __init__(self, client: ConfluentKafka, transactional_id: str) -> None:
        self._producer = ck.Producer({**client._base, "transactional.id": transactional_id, "linger.ms": 5})
        self._call(self._producer.init_transactions, PATIENCE_S)

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ck.KafkaException as error:
            # librdkafka tells a fenced producer with a code of its own.
            code = error.args[0].code()
            raise Refused(_FENCED if code == ck.KafkaError._FENCED else code, str(error)) from error

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, partition: Partition, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.produce(partition[0], value, partition=partition[1])
        assert self._producer.flush(PATIENCE_S) == 0

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, consumer: Consumer) -> None:
        assert isinstance(consumer, ConfluentConsumer)
        places = [ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        metadata = consumer._consumer.consumer_group_metadata()
        self._call(self._producer.send_offsets_to_transaction, places, metadata, PATIENCE_S)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, PATIENCE_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, PATIENCE_S)

    def close(self) -> None:
        self._producer.purge()


class _KafkaPython:
    def __init__(self, client: KafkaPython, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(**client._base, transactional_id=transactional_id, linger_ms=5)
        self._call(self._producer.init_transactions)

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except kafka.errors.ProducerFencedError as error:
            raise Refused(_FENCED, str(error)) from error
        except kafka.errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        except kafka.errors.KafkaError as error:
            cause = error.__cause__ or (error.args[0] if error.args else None)
            fenced = "fenced" in f"{error!r} {cause!r}".lower() or "ProducerEpoch" in f"{error!r} {cause!r}"
            raise Refused(_FENCED if fenced else -1, repr(error)) from error

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, partition: Partition, values: Sequence[bytes]) -> None:
        sent = [self._call(self._producer.send, partition[0], value, None, None, partition[1]) for value in values]
        self._producer.flush(PATIENCE_S)
        for future in sent:
            self._call(future.get, PATIENCE_S)

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, consumer: Consumer) -> None:
        places = {
            kafka.TopicPartition(*partition): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        self._call(self._producer.send_offsets_to_transaction, places, group)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=5)


class _Aiokafka:
    def __init__(self, client: Aiokafka, transactional_id: str) -> None:
        self._loop = client._loop
        self._producer = self._call(self._start(client, transactional_id))

    @staticmethod
    async def _start(client: Aiokafka, transactional_id: str) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(**client._base, transactional_id=transactional_id)
        await producer.start()
        return producer

    def _call(self, coroutine: Any) -> Any:
        try:
            return self._loop.run(coroutine)
        except aio_errors.ProducerFenced as error:
            raise Refused(_FENCED, str(error)) from error

    def begin(self) -> None:
        self._call(self._producer.begin_transaction())

    def send(self, partition: Partition, values: Sequence[bytes]) -> None:
        for value in values:
            self._call(self._producer.send_and_wait(partition[0], value, partition=partition[1]))

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, consumer: Consumer) -> None:
        places = {aiokafka.TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._call(self._producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction())

    def abort(self) -> None:
        self._call(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.run(self._producer.stop())


class _Java:
    def __init__(self, client: Java, transactional_id: str) -> None:
        self._jvm = client._jvm
        config = {"transactional.id": transactional_id, "linger.ms": "5"}
        self._number = self._jvm.call("producer", config=config)
        self._call("init_transactions")

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._jvm.call(operation, producer=self._number, **arguments)

    def begin(self) -> None:
        self._call("begin")

    def send(self, partition: Partition, values: Sequence[bytes]) -> None:
        from base64 import b64encode

        self._call("send", partition=partition, values=[b64encode(value).decode() for value in values])

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, consumer: Consumer) -> None:
        assert isinstance(consumer, JavaConsumer)
        triples = [[*partition, offset] for partition, offset in offsets.items()]
        self._call("send_offsets", offsets=triples, consumer=consumer.number, as_remembered=False)

    def commit(self) -> None:
        self._call("commit_transaction")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close_producer")
