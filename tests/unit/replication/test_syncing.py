"""When a sync round begins: at once for a single append, and together with those who are about to come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from tidelog.kernel.ports import Disk, File
from tidelog.log.partition_log import PartitionLog
from tidelog.log.unsynced import FlushRound
from tidelog.replication.syncing import PATIENCE, SyncRounds

SYNC_S = 0.0006


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.now_s


class Log:
    """As much of a log as a round asks for."""

    def __init__(self) -> None:
        self.end = 0

    def flush_begin(self) -> FlushRound:
        return FlushRound(self.end, (), (), (0, 0, 0))

    def flush_done(self, flushing: FlushRound) -> int:
        return flushing.offset


class World:
    """A disk whose syncs last until they are told to end, and a log with what it has durable."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.log = Log()
        self.synced = 0
        self._syncs: list[asyncio.Future[None]] = []
        self.rounds = SyncRounds(cast(Disk, self), self.clock, self._fail)

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> asyncio.Future[None]:
        self._syncs.append(asyncio.get_running_loop().create_future())
        return self._syncs[-1]

    @property
    def syncs(self) -> int:
        return len(self._syncs)

    def append(self, number: int = 1) -> None:
        for _ in range(number):
            self.log.end += 1
            self.rounds.want(cast(PartitionLog, self.log), 100, self._on_synced)

    async def end_sync(self) -> None:
        self.clock.now_s += SYNC_S
        self._syncs[-1].set_result(None)
        await turn()

    def _on_synced(self, offset: int, new_bytes: int) -> None:
        self.synced = offset

    def _fail(self, error: Exception) -> None:
        raise AssertionError(error)


async def turn(number: int = 1) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def play(scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scene(World())

    asyncio.run(main())


async def five_in_flight(world: World) -> None:
    """One was alone when its round began, four came meanwhile."""
    world.append()
    await turn()
    assert world.syncs == 1
    world.append(4)
    await turn(3)
    assert world.syncs == 1, "one round at a time"
    await world.end_sync()
    assert world.synced == 1


def test_a_single_append_waits_for_nobody() -> None:
    async def scene(world: World) -> None:
        for number in range(3):
            world.append()
            await turn()
            assert world.syncs == number + 1
            await world.end_sync()
            assert world.synced == number + 1

    play(scene)


def test_those_who_were_answered_are_waited_for() -> None:
    async def scene(world: World) -> None:
        await five_in_flight(world)
        await turn(5)
        assert world.syncs == 1, "the fifth was answered and will send another"
        world.append()
        await turn()
        assert world.syncs == 2
        await world.end_sync()
        assert world.synced == 6
        # From now on all five share each round.
        for rounds in (3, 4):
            world.append(2)
            await turn(3)
            world.append(2)
            await turn(3)
            assert world.syncs == rounds - 1
            world.append()
            await turn()
            assert world.syncs == rounds
            await world.end_sync()
            assert world.synced == world.log.end

    play(scene)


def test_those_who_do_not_come_are_waited_for_a_part_of_a_sync_at_most() -> None:
    async def scene(world: World) -> None:
        await five_in_flight(world)
        await turn(2)
        world.clock.now_s += SYNC_S * PATIENCE * 0.9
        await turn(2)
        assert world.syncs == 1
        world.clock.now_s += SYNC_S * PATIENCE * 0.2
        await turn(2)
        assert world.syncs == 2
        await world.end_sync()
        assert world.synced == 5

    play(scene)


def test_a_clock_that_stands_still_does_not_keep_a_round_waiting() -> None:
    async def scene(world: World) -> None:
        await five_in_flight(world)
        await turn(100)
        assert world.syncs == 2

    play(scene)


def test_no_round_begins_after_the_end() -> None:
    async def scene(world: World) -> None:
        await five_in_flight(world)
        await world.rounds.end()
        await turn(100)
        assert world.syncs == 1

    play(scene)
