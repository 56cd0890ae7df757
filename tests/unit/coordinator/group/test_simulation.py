"""Histories by seed, and bugs that are planted to see that they would be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.coordinator.group.simulation import Simulation
from tidelog.coordinator.group import commit as commit_module
from tidelog.coordinator.group import syncing as syncing_module
from tidelog.coordinator.group.classic import ClassicGroup
from tidelog.coordinator.group.machine import GroupMachine
from tidelog.coordinator.group.member import Member
from tidelog.coordinator.group.rebalance import Rebalance
from tidelog.coordinator.group.records import GroupWritten
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.shard import Shard
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest

SEEDS = 60
STEPS = 400


def play(seed: int) -> Counter[str]:
    simulation = Simulation(seed)
    try:
        simulation.run(STEPS)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return simulation.seen


def test_random_histories_keep_every_promise() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += play(seed)
    # A walk that never gets anywhere proves nothing.
    for what, at_least in (("synced", 300), ("committed", 300), ("fetched", 300), ("crashed", 30), ("Stable", 1_000)):
        assert seen[what] >= at_least, seen


def test_a_seed_is_a_whole_history() -> None:
    assert play(7) == play(7)


# planted bugs


def _commit_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = commit_module._check_member

    def careless(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        return honest(group, member_id, instance_id, group.generation)

    monkeypatch.setattr(commit_module, "_check_member", careless)


def _sync_of_any_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = syncing_module._check

    def careless(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
        error = honest(group, request)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    monkeypatch.setattr(syncing_module, "_check", careless)


def _reads_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Shard[GroupMachine], query: Callable[[GroupMachine], Any], answer: Any, refuse: Any) -> None:
        self.flush()
        answer(query(self.machine))

    monkeypatch.setattr(Shard, "read", read)


def _generations_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = GroupMachine.replay

    def careless(self: GroupMachine, record: Any, offset: int, producer_id: int) -> None:
        if not isinstance(record, GroupWritten) or record.value.generation % 2 == 0:
            honest(self, record, offset, producer_id)

    monkeypatch.setattr(GroupMachine, "replay", careless)


def _everybody_gets_the_leaders_part(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Rebalance.set_assignments

    def careless(self: Rebalance, group: ClassicGroup, assignments: Mapping[str, bytes], now: Moment) -> None:
        honest(self, group, dict.fromkeys(assignments, assignments[group.leader_id or ""]), now)

    monkeypatch.setattr(Rebalance, "set_assignments", careless)


def _a_join_that_is_repeated_is_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Rebalance.answer_join

    def careless(self: Rebalance, group: ClassicGroup, member: Member, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.FENCED_INSTANCE_ID:
            group.await_join(member, None)
        else:
            honest(self, group, member, response)

    monkeypatch.setattr(Rebalance, "answer_join", careless)


@pytest.mark.parametrize(
    "plant",
    [
        _commit_of_any_generation,
        _sync_of_any_generation,
        _reads_do_not_wait,
        _generations_are_not_replayed,
        _everybody_gets_the_leaders_part,
        _a_join_that_is_repeated_is_never_answered,
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed \d+"):
        for seed in range(SEEDS):
            play(seed)
