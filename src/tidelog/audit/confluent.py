"""For confluent-kafka: a producer and a consumer that count. Both are used as before; the methods here stand in for
those of the same name, and `client` is the rest.

    producer = AuditedProducer(Producer({...}), name="checkout", topics=["orders"])
    producer.produce("orders", b"value", key=b"key")
    producer.poll(0)
    producer.close()

Call `poll` at least once a window, as one does anyway. A producer may be shared by threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tidelog.audit.notices import PRODUCER, Notice
from tidelog.audit.publishing import Audited, Options
from tidelog.audit.stamps import Stamp, stamp_of, stamped

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer


class _Audited(Audited):
    def __init__(self, producer: Producer, tier: str, name: str, **options: Unpack[Options]) -> None:
        self._producer = producer
        super().__init__(tier, name, **options)

    def _send(self, notice: Notice, value: bytes, done: Callable[[bool], None]) -> None:
        self._producer.produce(
            self._audit_topic, value, notice.key, on_delivery=lambda error, _message: done(error is None)
        )


class AuditedProducer(_Audited):
    """Stamps records, counts those that are acknowledged, and publishes the counts with the same producer."""

    def __init__(self, client: Producer, *, name: str, **options: Unpack[Options]) -> None:
        self.client = client
        super().__init__(client, PRODUCER, name, **options)

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        *,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
        on_delivery: Callable[[Any, Any], None] | None = None,
    ) -> None:
        """As Producer.produce. The record's time is the one given, or now: it is in the header too."""
        publisher, member = self._publisher, self._publisher.member
        time_ms = timestamp or self._publisher.now_ms()
        pairs = headers.items() if isinstance(headers, dict) else headers

        def delivered(error: Any, message: Any) -> None:
            publisher.sent(topic, time_ms, delivered=error is None)
            if on_delivery is not None:
                on_delivery(error, message)

        ours = stamped(pairs, Stamp(time_ms, member.host, member.name))
        publisher.sending(topic, time_ms)
        try:
            self.client.produce(topic, value, key, partition, on_delivery=delivered, timestamp=time_ms, headers=ours)
        except Exception:  # such as a full queue: the application hears of it and may try again
            publisher.not_sent(time_ms)
            raise

    def poll(self, timeout: float = 0) -> int:
        self._publisher.tick()
        return int(self.client.poll(timeout))

    def flush(self, timeout: float = -1) -> int:
        self._publisher.tick()
        return int(self.client.flush(timeout))

    def close(self, timeout: float = 30) -> int:
        """Flush, tell the last counts, and say that no more will come; the number of what is still under way. Without
        it the last windows stay unknown."""
        self.client.flush(timeout)
        self._publisher.close()
        return int(self.client.flush(timeout))


class AuditedConsumer(_Audited):
    """Counts what is given to the application, and publishes it with a producer."""

    def __init__(
        self, client: Consumer, publish_with: Producer, *, tier: str, name: str, **options: Unpack[Options]
    ) -> None:
        self.client = client
        super().__init__(publish_with, tier, name, **options)

    def poll(self, timeout: float = -1) -> Message | None:
        message = self.client.poll(timeout)
        self._count([] if message is None else [message])
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        messages: list[Message] = self.client.consume(num_messages, timeout)
        self._count(messages)
        return messages

    def close(self, timeout: float = 30) -> None:
        self.client.close()
        self._publisher.close()
        self._producer.flush(timeout)

    def _count(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.error() is None:
                headers: Any = message.headers()
                stamp = stamp_of(headers)
                time_ms = message.timestamp()[1] if stamp is None else stamp.time_ms
                partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                self._publisher.consumed(str(message.topic()), time_ms, partition, offset)
        self._publisher.tick()
        self._producer.poll(0)
