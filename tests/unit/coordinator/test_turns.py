"""No turn of a coordinator is long, however large the group or the log, and whatever an administrator asks."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.coordinator.fakes import FakeLog, World
from tests.unit.coordinator.group.consumer.members import Consumer, group_of
from tests.unit.coordinator.turns import Turns
from tests.unit.coordinator.txn.world import World as TxnWorld
from tidelog.coordinator.group.consumer.regexes import REFRESH_DELAY_MS
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.txn.administration import describe_transactions, list_all
from tidelog.coordinator.txn.coordinator import TransactionCoordinator
from tidelog.coordinator.txn.records import TransactionRecord, TransactionValue, encode_record
from tidelog.coordinator.txn.state import TransactionState
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

MEMBERS = 1_000
IDS = 5_000


def run(world: World | TxnWorld, turns: Turns) -> None:
    runtime = world.runtime if isinstance(world, World) else world.coordinator.runtime
    while (deadline_ms := runtime.deadline_ms()) is not None and deadline_ms <= world.clock.ms + 5:
        world.clock.ms = max(world.clock.ms, deadline_ms)
        turns.take(runtime.poll)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_thousand_members_with_subscriptions_of_their_own(assignor: str) -> None:
    world, random = World(), Random(1)
    world.topics.partitions = {f"t{number:03}": 50 for number in range(100)}
    names = sorted(world.topics.partitions)
    for number in range(MEMBERS):
        Consumer(world, f"m{number:04}", topics=random.sample(names, 50), assignor=assignor).join()
    world.clock.ms += 2_000
    turns = Turns()
    run(world, turns)
    group = group_of(world)
    assert (group.epoch, group.target_epoch) == (MEMBERS, MEMBERS)
    assert sum(len(part) for target in group.targets.values() for part in target.values()) == 5_000
    turns.check(at_least=5)


def test_expressions_of_many_members_held_against_many_topics() -> None:
    world = World()
    world.topics.partitions = {f"topic-{number:05}": 1 for number in range(2_000)}
    for number in range(40):
        Consumer(world, f"m{number:02}", topics=None, regex=f"topic-.*{number:02}").join()
    world.advance(5_000)
    assert {len(found.topics) for found in group_of(world).regexes.values()} == {20}
    world.topics.partitions["topic-99907"] = 1
    world.groups.topics_changed({"topic-99907"}, came_or_went=True)
    world.clock.ms += REFRESH_DELAY_MS
    turns = Turns()
    run(world, turns)
    world.advance(5_000)
    assert "topic-99907" in group_of(world).regexes["topic-.*07"].topics
    turns.check(at_least=10)


def ids(count: int) -> list[str]:
    return [f"id-{number:05}" for number in range(count)]


def filled(world: TxnWorld, names: list[str]) -> FakeLog:
    """As after so many InitProducerIds."""
    log = FakeLog()
    for number, name in enumerate(names):
        value = TransactionValue(
            number, 0, 60_000, TransactionState.EMPTY, frozenset(), world.clock.wall_ms(), previous_producer_id=number
        )
        log.append([encode_record(TransactionRecord(name, value))], world.clock.wall_ms())
    return log


@pytest.mark.parametrize("partitions", [1, 50])
def test_thousands_of_transactional_ids_that_are_loaded(partitions: int) -> None:
    world = TxnWorld(state_log_num_partitions=partitions)
    world.coordinator = TransactionCoordinator(
        world.config, world.markers, world.ids, lambda: 2, world.clock, lambda: None
    )
    logs = [filled(world, ids(IDS)[partition::partitions]) for partition in range(partitions)]
    turns = Turns()

    def load() -> None:
        for partition, log in enumerate(logs):
            world.coordinator.load(partition, 1, log)

    turns.take(load)
    run(world, turns)
    assert sum(len(shard.machine.transactions) for shard in world.coordinator.runtime.shards()) == IDS
    turns.check(at_least=10)


@pytest.fixture
def loaded() -> TxnWorld:
    world = TxnWorld()
    world.log = filled(world, ids(IDS))
    world.restart()
    return world


def test_thousands_of_transactional_ids_that_are_listed(loaded: TxnWorld) -> None:
    answers: list[ListTransactionsResponse] = []
    turns = Turns()
    now = Moment.of(loaded.clock)
    turns.take(lambda: list_all(loaded.coordinator, ListTransactionsRequest(), None, now, answers.append))
    run(loaded, turns)
    assert [listed.transactional_id for listed in answers[0].transaction_states] == ids(IDS)
    turns.check(at_least=3)


def test_thousands_of_transactional_ids_that_are_described(loaded: TxnWorld) -> None:
    answers: list[DescribeTransactionsResponse] = []
    turns = Turns()
    wanted = DescribeTransactionsRequest(transactional_ids=ids(IDS))
    turns.take(lambda: describe_transactions(loaded.coordinator, wanted, answers.append))
    run(loaded, turns)
    assert [described.transactional_id for described in answers[0].transaction_states] == ids(IDS)
    turns.check(at_least=5)
