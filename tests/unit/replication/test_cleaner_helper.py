"""The cleaner and its helper process: kept from one cleaning to the next, let go after a long pause."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.virtual import Peer, on_node
from tests.unit.replication.test_cleaner import COMPACT, FAST, cleaner_of, put
from tidelog.testing.simulation import SimulatedWorld


async def _keeps_its_helper(world: SimulatedWorld, peer: Peer) -> None:
    rests: list[float] = []
    cleaner = cleaner_of(world)

    async def rest() -> None:
        rests.append(asyncio.get_running_loop().time())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner._jobs, "rest", rest, raising=False)
        await peer.create_topic("c", config=COMPACT)
        put(peer, "c", 40)
        await asyncio.sleep(10)
        assert cleaner.cleanings
        ended = asyncio.get_running_loop().time()
        await asyncio.sleep(280)
        assert rests == []
        await asyncio.sleep(30)
        assert rests and rests[0] >= ended + 280


test_the_helper_is_kept_for_the_next_cleaning_and_let_go_after_minutes = on_node(_keeps_its_helper, **FAST)


async def _rests_when_switched_off(world: SimulatedWorld, peer: Peer) -> None:
    rested = asyncio.Event()

    async def rest() -> None:
        rested.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaner_of(world)._jobs, "rest", rest, raising=False)
        await asyncio.wait_for(rested.wait(), 10)


test_a_cleaner_that_is_off_keeps_no_helper = on_node(_rests_when_switched_off, **FAST, log_cleaner_enable="false")
