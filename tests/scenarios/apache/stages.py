"""One stay of a directory at a broker: what was seen on arrival, what was done, and what was seen on departure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.scenarios.apache.content import MINUTE_MS, Sequence, commit, create, produce, take_part
from tests.scenarios.apache.observing import Observed, observe
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tools.apache import ApacheKafka


class Stay(NamedTuple):
    arrived: Observed
    left: Observed
    sent: list[tuple[ErrorCode, int]]
    """The answers to a retry of the idempotent producer's last batch, and to its next."""
    log: str


def times(start_ms: int) -> list[int]:
    """Looked up in every partition: before, within and behind what is stored."""
    return [start_ms - MINUTE_MS, start_ms + 2, start_ms + MINUTE_MS + 1, start_ms + 4 * MINUTE_MS, start_ms * 2]


def work(
    bootstrap: str, name: str, sequence: Sequence, next_sequence: int, start_ms: int
) -> list[tuple[ErrorCode, int]]:
    """What clients do at every stay, on top of what they find."""
    sent = [sequence.send(bootstrap, number, start_ms) for number in (next_sequence - 1, next_sequence)]
    create(bootstrap, {f"of-{name}": (2, {"retention.bytes": "123456789"})})
    produce(bootstrap, f"of-{name}", 30, start_ms, partition=1, **{"compression.type": "lz4"})
    for topic in ("plain", "segments", "trimmed", "beheaded", "compacted"):
        produce(bootstrap, topic, 10, start_ms + 10 * MINUTE_MS, **{"enable.idempotence": True})
    commit(bootstrap, "simple", {("plain", 1): next_sequence, ("segments", 0): 41 + next_sequence})
    commit(bootstrap, f"new-at-{name}", {(f"of-{name}", 1): 17})
    take_part(bootstrap, f"members-at-{name}", "plain")
    return sent


@contextmanager
def at_tidelog(data: Path, **config: str) -> Iterator[Broker]:
    """`tidelog serve` until SIGTERM."""
    with Broker({name.replace("_", "."): value for name, value in config.items()}, process=True, data=data) as broker:
        yield broker


@contextmanager
def at_apache(home: Path, data: list[Path], **options: object) -> Iterator[ApacheKafka]:
    with ApacheKafka(home, heap="384m", data=data, **options) as kafka:  # type: ignore[arg-type]
        yield kafka
        assert kafka.stop() == 143, kafka.output


def stay(bootstrap: str, name: str, sequence: Sequence, next_sequence: int, start_ms: int) -> Stay:
    arrived = observe(bootstrap, times=times(start_ms))
    sent = work(bootstrap, name, sequence, next_sequence, start_ms)
    return Stay(arrived, observe(bootstrap, times=times(start_ms)), sent, "")
