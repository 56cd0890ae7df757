"""A data directory goes from Tidelog to Apache Kafka 4.3.1: each shows what the other stored, and goes on with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.scenarios.apache.content import HOUR_MS, Sequence, fill
from tests.scenarios.apache.observing import Observed, observe
from tests.scenarios.apache.stages import Stay, at_apache, at_tidelog, stay, times
from tidelog.protocol.errors import ErrorCode
from tools.apache import why_not

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


class Born(NamedTuple):
    home: Path
    data: Path
    start_ms: int
    sequence: Sequence
    left: Observed


@pytest.fixture(scope="module")
def born(tmp_path_factory: pytest.TempPathFactory) -> Born:
    """A directory that Tidelog made and filled, after a clean stop."""
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to exchange directories with: {missing}")
    home = tmp_path_factory.mktemp("exchange")
    data = home / "data"
    start_ms = int(time.time() * 1000) - HOUR_MS
    with at_tidelog(data) as broker:
        bootstrap = broker.bootstrap_servers
        fill(bootstrap, start_ms)
        sequence = Sequence(bootstrap)
        assert [sequence.send(bootstrap, number, start_ms) for number in range(3)] == [
            (ErrorCode.NONE, number) for number in range(3)
        ]
        left = observe(bootstrap, times=times(start_ms))
    return Born(home, data, start_ms, sequence, left)


@pytest.fixture(scope="module")
def at_apaches(born: Born) -> Stay:
    with at_apache(born.home / "first", [born.data]) as kafka:
        return stay(kafka.bootstrap_servers, "apache", born.sequence, 3, born.start_ms)


def test_what_tidelog_left_has_one_of_each(born: Born) -> None:
    """The comparison is worth as much as what there is to compare."""
    segments = {name: len(list((born.data / f"{name}-0").glob("*.log"))) for name in ("segments", "trimmed", "plain")}
    assert segments == {"segments": 6, "trimmed": 6, "plain": 1}
    assert born.left.offsets["trimmed", 0][-2][0] == 7
    assert "gone" not in born.left.topics
    assert born.left.groups["static"].state == "Stable"
    assert born.left.committed["simple"]["plain", 2].offset == 11
    assert born.left.broker_configs["1"] == [("log.retention.ms", "777777777"), ("log.segment.bytes", "66666666")]


@pytest.mark.parametrize("field", Observed._fields)
def test_apache_shows_what_tidelog_stored(born: Born, at_apaches: Stay, field: str) -> None:
    assert getattr(at_apaches.arrived, field) == getattr(born.left, field)


def test_the_idempotent_producer_goes_on_at_apache(at_apaches: Stay) -> None:
    """Its last batch is known as a duplicate, its next is taken: the producer snapshot was read."""
    assert at_apaches.sent == [(ErrorCode.NONE, 2), (ErrorCode.NONE, 3)]
