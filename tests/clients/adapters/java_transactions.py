"""Java's transactional producer, and what its Admin sees and does of transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.clients.adapters.java import JavaConsumer, Jvm, base64
from tests.clients.model import Partition


class JavaProducer:
    """Of one transactional id; it sends values and nothing else."""

    def __init__(self, jvm: Jvm, transactional_id: str, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self._jvm = jvm
        self._number = jvm.call("producer", config={"transactional.id": transactional_id, **config})

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._jvm.call(operation, producer=self._number, **arguments)

    def init(self) -> JavaProducer:
        self._call("init_transactions")
        return self

    def begin(self) -> None:
        self._call("begin")

    def send(self, partition: Partition, *values: bytes) -> list[int]:
        """The offsets, when all are acknowledged."""
        return list(self._call("send", partition=partition, values=[base64(value) for value in values]))

    def send_offsets(
        self, consumer: JavaConsumer, offsets: Mapping[Partition, int], *, as_remembered: bool = False
    ) -> None:
        triples = [(*partition, offset) for partition, offset in offsets.items()]
        self._call("send_offsets", consumer=consumer.number, offsets=triples, as_remembered=as_remembered)

    def commit(self) -> None:
        self._call("commit_transaction")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close_producer")


class TransactionAdmin:
    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    def list(
        self, states: Sequence[str] = (), *, pattern: str | None = None, duration_ms: int = -1
    ) -> dict[str, tuple[int, str]]:
        """Transactional id -> producer id and state."""
        found = self._jvm.call("list_transactions", states=states, pattern=pattern, duration_ms=duration_ms)
        return {name: (producer_id, state) for name, (producer_id, state) in found.items()}

    def describe(self, transactional_id: str) -> dict[str, Any]:
        return dict(self._jvm.call("describe_transaction", id=transactional_id))

    def producers(self, partition: Partition) -> list[dict[str, Any]]:
        return list(self._jvm.call("describe_producers", partition=partition))

    def abort(self, partition: Partition, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        self._jvm.call(
            "abort_transaction",
            partition=partition,
            producer_id=producer_id,
            epoch=epoch,
            coordinator_epoch=coordinator_epoch,
        )

    def fence(self, *transactional_ids: str) -> None:
        self._jvm.call("fence_producers", ids=transactional_ids)

    def features(self) -> dict[str, int]:
        return dict(self._jvm.call("features"))
