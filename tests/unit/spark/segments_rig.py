"""For the tests of read=segments, without Spark: a node, a task read by it and by its files, copies of its folders that
a test may spoil."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.spark.sourcing import Log
from tidelog.spark.client_config import Isolation
from tidelog.spark.link import Link
from tidelog.spark.source import rows
from tidelog.spark.source.task import Task
from tidelog.testing import Broker

FROM_BROKER = "came from the broker"


class Rig(Log):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.bootstrap_servers, broker.data)

    def link(self) -> Link:
        return Link({"bootstrap.servers": self.bootstrap})

    def task(self, topic: str, dirs: Sequence[Path | str] = (), **changes: Any) -> Task:
        isolation: Isolation = changes.get("isolation", "read_committed")
        with self.link() as link:
            found = {
                "start": link.earliest([(topic, 0)])[topic, 0],
                "end": link.latest([(topic, 0)], isolation)[topic, 0],
                "topic_id": link.topic_ids([topic])[topic],
            }
        fixed = {
            "kafka": {"bootstrap.servers": self.bootstrap},
            "topic": topic,
            "partition": 0,
            "isolation": isolation,
            "headers": True,
            "fail_on_data_loss": True,
            "silence_s": 60,
            "log_dirs": tuple(map(str, dirs)),
        }
        return Task(**{**fixed, **found, **changes})

    def read(self, topic: str, dirs: Sequence[Path | str] = (), **changes: Any) -> list[dict[str, Any]]:
        return as_rows(rows.read(self.task(topic, dirs, **changes)))

    def both(self, topic: str, dirs: Sequence[Path | str] | None = None, **changes: Any) -> list[dict[str, Any]]:
        """By the broker and by files, which must be the same."""
        by_broker = self.read(topic, **changes)
        by_files = self.read(topic, [self.data] if dirs is None else dirs, **changes)
        assert by_files == by_broker
        return by_files

    def copy(self, topic: str, to: Path) -> Path:
        """The partition's folder in a directory of the test's own."""
        folder = to / f"{topic}-0"
        shutil.copytree(self.data / folder.name, folder)
        return folder


def as_rows(batches: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in batches:
        assert isinstance(batch, pa.RecordBatch)
        found += batch.to_pylist()
    return found


def offsets(found: Sequence[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in found]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))
