"""Apache Kafka's generated classes behind a pipe (Oracle.java), started once per test session."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from tests.unit.protocol.catalog import Entry

PACKAGES = {
    "records_metadata": "common.metadata",
    "records_raft": "raft.generated",
    "records_storage": "server.log.remote.metadata.storage.generated",
    "records_group": "coordinator.group.generated",
    "records_transaction": "coordinator.transaction.generated",
    "records_share": "coordinator.share.generated",
}


class Refused(Exception):
    """Kafka raised where it was asked to read or write."""


def java_class(entry: Entry) -> str:
    package = PACKAGES.get(entry.module, "common.message")
    suffix = "Data" if entry.schema.kind in ("request", "response", "header") else ""
    return f"org.apache.kafka.{package}.{entry.schema.name}{suffix}"


class Oracle:
    def __init__(self, libs: Path) -> None:
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = ["java", *flags, "-cp", f"{libs}/*", str(Path(__file__).with_name("Oracle.java"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.communicate()

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        if answer.startswith("!"):
            raise Refused(answer[1:])
        return answer

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
