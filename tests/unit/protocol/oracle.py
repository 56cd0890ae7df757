"""Apache Kafka's generated classes behind a pipe (Oracle.java), started once per test session."""

from __future__ import annotations

from pathlib import Path

from tests.unit.java_witness import Witness
from tests.unit.protocol.catalog import Entry

PACKAGES = {
    "records_metadata": "common.metadata",
    "records_raft": "raft.generated",
    "records_storage": "server.log.remote.metadata.storage.generated",
    "records_group": "coordinator.group.generated",
    "records_transaction": "coordinator.transaction.generated",
    "records_share": "coordinator.share.generated",
}


def java_class(entry: Entry) -> str:
    package = PACKAGES.get(entry.module, "common.message")
    suffix = "Data" if entry.schema.kind in ("request", "response", "header") else ""
    return f"org.apache.kafka.{package}.{entry.schema.name}{suffix}"


class Oracle(Witness):
    def __init__(self, libs: Path) -> None:
        super().__init__(libs, Path(__file__).with_name("Oracle.java"))

    def reread(self, entry: Entry, version: int, data: bytes) -> bytes:
        return bytes.fromhex(self.ask("R", java_class(entry), version, data.hex()))

    def convert(self, entry: Entry, version: int, other: int, data: bytes) -> bytes:
        return bytes.fromhex(self.ask("C", java_class(entry), version, other, data.hex()))

    def default(self, entry: Entry, version: int) -> bytes:
        return bytes.fromhex(self.ask("D", java_class(entry), version))

    def with_unknown_tags(self, entry: Entry, version: int, data: bytes) -> bytes:
        return bytes.fromhex(self.ask("U", java_class(entry), version, data.hex()))

    def json(self, entry: Entry, version: int, data: bytes) -> str:
        return self.ask("J", java_class(entry), version, data.hex())
