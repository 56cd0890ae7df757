"""The heap of deadlines on uvloop, whose handles differ from asyncio's: only a real client met that."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.deadlines import Deadlines

uvloop = pytest.importorskip("uvloop")


def test_a_deadline_that_has_come_does_not_break_the_next() -> None:
    async def scenario() -> None:
        deadlines = Deadlines()
        both = asyncio.Event()
        deadlines.after(0.0001, lambda: None)
        deadlines.after(0.001, both.set)
        await asyncio.wait_for(both.wait(), 10)

    uvloop.run(scenario())
