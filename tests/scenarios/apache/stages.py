"""One stay of a directory at a broker: what was seen on arrival, what was done, and what was seen on departure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.scenarios.apache.content import MINUTE_MS, IdempotentProducer, commit, create, produce, take_part
from tests.scenarios.apache.observing import Observed
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tools.apache import ApacheKafka


class Directory(NamedTuple):
    """A directory on its way, and what the tests know about it."""

    home: Path
    data: list[Path]
    start_ms: int
    producer: IdempotentProducer
    left: Observed
    """As the broker that made it has left it."""

    @property
    def times(self) -> list[int]:
        return times(self.start_ms)


class Stay(NamedTuple):
    arrived: Observed
    left: Observed
    sent: list[tuple[ErrorCode, int]]
    """The answers to a retry of the idempotent producer's last batch, and to its next."""
    guards: Sequence[str] = ()
    log: str = ""


def times(start_ms: int) -> list[int]:
    """Looked up in every partition: before, within and behind what is stored."""
    return [start_ms - MINUTE_MS, start_ms + 2, start_ms + MINUTE_MS + 1, start_ms + 4 * MINUTE_MS, start_ms * 2]


@contextmanager
def at_tidelog(data: Sequence[Path], config: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """`tidelog serve` until SIGTERM, synced as it is by default."""
    dirs = {"log.dirs": ",".join(map(str, data))} if len(data) > 1 else {}
    with Broker({**dirs, **(config or {})}, process=True, data=data[0]) as broker:
        yield broker


@contextmanager
def at_apache(
    home: Path, data: list[Path], *, properties: Mapping[str, str] | None = None, standalone: bool = False
) -> Iterator[ApacheKafka]:
    with ApacheKafka(home, heap="384m", data=data, properties=properties, standalone=standalone) as kafka:
        yield kafka
        assert kafka.stop() == 143, kafka.output


def work(bootstrap: str, name: str, directory: Directory, sequence: int) -> list[tuple[ErrorCode, int]]:
    """What clients do at every stay, on top of what they find."""
    start_ms = directory.start_ms
    sent = [directory.producer.send(bootstrap, number, start_ms) for number in (sequence - 1, sequence)]
    create(bootstrap, {f"of-{name}": (2, {"retention.bytes": "123456789"})})
    produce(bootstrap, f"of-{name}", 30, start_ms, partition=1, **{"compression.type": "lz4"})
    for topic in ("plain", "segments", "trimmed", "beheaded", "compacted"):
        produce(bootstrap, topic, 10, start_ms + 10 * MINUTE_MS, **{"enable.idempotence": True})
    commit(bootstrap, "simple", {("plain", 1): sequence, ("segments", 0): 41 + sequence})
    commit(bootstrap, f"new-at-{name}", {(f"of-{name}", 1): 17})
    take_part(bootstrap, f"members-at-{name}", "plain")
    return sent
