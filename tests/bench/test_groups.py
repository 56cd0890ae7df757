"""The scripted members of `./dev bench groups` work, and its table is what was measured."""

from __future__ import annotations

import asyncio
from uuid import UUID

from bench.group_members import ClassicGroup, ConsumerMember, await_coordinator, connect
from bench.groups import render
from tidelog.testing import Broker


def test_members_of_the_classic_protocol_rebalance() -> None:
    async def main(address: str) -> None:
        group = ClassicGroup(await connect(address, 5), "classic", "t", 12)
        await group.form()
        found = await group.rebalance()
        assert found.total_s == found.join_s + found.sync_s > 0
        for wire in group.wires:
            wire.transport.close()

    with Broker({"group.initial.rebalance.delay.ms": "500"}) as broker:
        broker.create_topic("t", partitions=12)
        asyncio.run(main(broker.bootstrap_servers))


def test_members_of_the_new_protocol_share_what_there_is() -> None:
    async def main(address: str) -> None:
        wires = await connect(address, 3)
        await await_coordinator(wires[0], "consumer")
        members = [
            ConsumerMember(wire, "consumer", "t", str(UUID(int=number + 1, version=4)))
            for number, wire in enumerate(wires)
        ]
        running = [asyncio.ensure_future(member.run()) for member in members]
        while sorted(member.count for member in members) != [4, 4, 4]:
            await asyncio.wait([*running, asyncio.ensure_future(asyncio.sleep(0.05))], return_when="FIRST_COMPLETED")
            for task in running:
                if task.done():
                    task.result()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for wire in wires:
            wire.transport.close()

    with Broker() as broker:
        broker.create_topic("t", partitions=12)
        asyncio.run(main(broker.bootstrap_servers))


def test_the_table_has_a_column_for_each_side() -> None:
    made = render({"classic": {"tidelog": {"join_ms": 1.25, "stop": 5.0}, "apache": {"join_ms": 1234.5}}})
    assert made.splitlines() == [
        "| classic | tidelog | apache |",
        "|---|---|---|",
        "| join_ms | 1.2 | 1,234.5 |",
        "| stop | 5.0 | – |",
    ]
