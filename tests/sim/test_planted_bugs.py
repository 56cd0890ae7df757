"""The simulation can fail: each bug is planted here, by the test, and must be caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.metadata_workload import run_metadata
from tests.sim.workload import run_workload
from tidelog.log import loading
from tidelog.log.producers import ProducerStates
from tidelog.raft import quorum
from tidelog.sim.loop import run

SEEDS = 40


def caught(workload: Callable[[int], Coroutine[Any, Any, object]]) -> BaseException | None:
    """The first failure within the seeds, None when the bug goes unseen."""
    for seed in range(SEEDS):
        try:
            run(workload(seed), seed)
        except Exception as error:
            return error
    return None


def test_producer_state_not_rebuilt_after_a_kill_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """M7: the broker starts with no memory of who wrote what."""

    def forget(producers: ProducerStates, segments: object, end: int) -> list[str]:
        producers.end_offset = end
        return []

    monkeypatch.setattr(loading, "replay_producers", forget)
    monkeypatch.setattr(ProducerStates, "load", lambda self, end: 0)
    monkeypatch.setattr(ProducerStates, "check", accept_unknown(ProducerStates.check))
    error = caught(run_workload)
    assert error is not None and "twice or out of order" in str(error)


def accept_unknown(check: Callable[..., Any]) -> Callable[..., Any]:
    """A broker that has forgotten a producer takes whatever sequence it sends first."""

    def lenient(self: ProducerStates, header: Any) -> Any:
        return check(self, header) if self.get(header.producer_id) is not None else None

    return lenient


def test_metadata_acknowledged_before_its_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sync(*_: Any) -> int:
        return 0

    monkeypatch.setattr(quorum, "flush", no_sync)
    error = caught(run_metadata)
    assert error is not None and "expected one of" in str(error)


def test_a_snapshot_that_leaves_out_configs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.controller import controller
    from tidelog.protocol.messages.records_metadata import ConfigRecord

    real = controller.image_records
    monkeypatch.setattr(
        controller, "image_records", lambda image: (r for r in real(image) if not isinstance(r, ConfigRecord))
    )
    error = caught(run_metadata)
    assert error is not None and "expected one of" in str(error)
