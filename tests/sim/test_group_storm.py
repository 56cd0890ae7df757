from __future__ import annotations

import pytest

from tests.sim.group_storm import storm
from tidelog.coordinator.group.consumer import ownership
from tidelog.sim.loop import run


@pytest.mark.parametrize(
    ("protocol", "members", "partitions", "seconds"),
    [("classic", 100, 20, 8.0), ("consumer", 100, 20, 5.0), ("consumer", 12, 60, 15.0)],
)
def test_a_storm_of_members_ends_with_every_partition_owned_once(
    protocol: str, members: int, partitions: int, seconds: float
) -> None:
    """A part of the storm; `python -m tests.sim.group_storm` is the whole minute."""
    ledger = run(storm(1, protocol, members=members, partitions=partitions, seconds=seconds), 1)
    assert ledger.handed_out > partitions


def test_a_coordinator_that_does_not_wait_for_the_last_owner_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    extend = ownership._extend
    monkeypatch.setattr(
        ownership, "_extend", lambda kept, target, epoch, is_free: extend(kept, target, epoch, lambda *_: True)
    )
    with pytest.raises(AssertionError, match="was given to"):
        run(storm(1, "consumer", members=12, partitions=60, seconds=15.0), 1)
