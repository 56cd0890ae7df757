"""What Apache Kafka's own classes say of record batches, and how a record is written for them (Records.java)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.protocol.batch import Record, RecordInput

Ask = Callable[..., str]


def as_text(record: RecordInput | Record) -> str:
    def text(data: bytes | None) -> str:
        return "-" if data is None else data.hex()

    headers = ";".join(f"{name.encode().hex()}={text(content)}" for name, content in record.headers)
    return f"{record.timestamp}/{text(record.key)}/{text(record.value)}/{headers}"


def contents(fields: Sequence[str]) -> list[str]:
    """The records of an answer to R, without their batches and offsets."""
    return [field.partition(":")[2] for field in fields if not field.startswith("batch:")]
