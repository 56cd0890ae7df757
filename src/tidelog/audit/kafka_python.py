"""For kafka-python: a producer and a consumer that count. Both are used as before; the methods here stand in for those
of the same name, and `client` is the rest.

    producer = AuditedProducer(KafkaProducer(...), name="checkout", topics=["orders"])
    producer.send("orders", b"value")
    producer.close()

kafka-python acknowledges in a thread of its own; what it reports is put in a queue and counted by the application's
thread, in `send`, `flush`, `tick` and `close`. Call one of them at least once a window. A producer may be shared by
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Unpack

from tidelog.audit.notices import PRODUCER, Notice
from tidelog.audit.publishing import Audited, Options
from tidelog.audit.stamps import Stamp, stamp_of, stamped

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer


class _Reports:
    """What the client's thread has to say, said again in ours."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def watch(self, future: Any, done: Callable[[bool], None]) -> None:
        future.add_callback(lambda _metadata: self._queue.put(lambda: done(True)))
        future.add_errback(lambda _error: self._queue.put(lambda: done(False)))

    def hear(self) -> None:
        while True:
            try:
                report = self._queue.get_nowait()
            except Empty:
                return
            report()


class _Audited(Audited):
    def __init__(self, producer: KafkaProducer, tier: str, name: str, **options: Unpack[Options]) -> None:
        self._producer = producer
        self._reports = _Reports()
        super().__init__(tier, name, **options)

    def tick(self) -> None:
        """For an application that sends seldom: counts what was acknowledged, publishes when a window has passed."""
        self._reports.hear()
        self._publisher.tick()

    def _send(self, notice: Notice, value: bytes, done: Callable[[bool], None]) -> None:
        self._reports.watch(self._producer.send(self._audit_topic, value, notice.key), done)


class AuditedProducer(_Audited):
    """Stamps records, counts those that are acknowledged, and publishes the counts with the same producer."""

    def __init__(self, client: KafkaProducer, *, name: str, **options: Unpack[Options]) -> None:
        self.client = client
        super().__init__(client, PRODUCER, name, **options)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """As KafkaProducer.send. The record's time is the one given, or now: it is in the header too."""
        self.tick()
        publisher, member = self._publisher, self._publisher.member
        time_ms = self._publisher.now_ms() if timestamp_ms is None else timestamp_ms
        ours = stamped(headers, Stamp(time_ms, member.host, member.name))
        publisher.sending(topic, time_ms)
        try:
            future = self.client.send(topic, value, key, ours, partition, time_ms)
        except Exception:
            publisher.not_sent(time_ms)
            raise
        self._reports.watch(future, lambda arrived: publisher.sent(topic, time_ms, delivered=arrived))
        return future

    def flush(self, timeout: float | None = None) -> None:
        self.client.flush(timeout)
        self.tick()

    def close(self, timeout: float | None = 30) -> None:
        """Flush, tell the last counts, say that no more will come, and close the client. Without it the last windows
        stay unknown."""
        self.client.flush(timeout)
        self._reports.hear()
        self._publisher.close()
        self.client.flush(timeout)
        self.client.close(timeout)


class AuditedConsumer(_Audited):
    """Counts what is given to the application, and publishes it with a producer. Iterate over it, or `poll`."""

    def __init__(
        self, client: KafkaConsumer, publish_with: KafkaProducer, *, tier: str, name: str, **options: Unpack[Options]
    ) -> None:
        self.client = client
        super().__init__(publish_with, tier, name, **options)

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = self.client.poll(timeout_ms=timeout_ms, max_records=max_records)
        for records in found.values():
            for record in records:
                self._count(record)
        self.tick()
        return found

    def __iter__(self) -> Iterator[Any]:
        for record in self.client:
            self._count(record)
            self.tick()
            yield record

    def close(self, timeout: float = 30) -> None:
        self.client.close()
        self._reports.hear()
        self._publisher.close()
        self._producer.flush(timeout)

    def _count(self, record: Any) -> None:
        stamp = stamp_of(record.headers)
        time_ms = record.timestamp if stamp is None else stamp.time_ms
        self._publisher.consumed(record.topic, time_ms, record.partition, record.offset)
