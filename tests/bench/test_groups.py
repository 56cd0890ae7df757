"""The scripted members of `./dev bench groups` work, and its table is what was measured."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bench import groups
from bench.group_members import ClassicGroup, ConsumerMember, await_coordinator, connect
from bench.group_nodes import Node
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


def test_what_could_not_be_measured_is_said_below_the_table() -> None:
    made = render({"consumer": {"apache": {"formed_s": 1.0}}}, {"consumer": {"apache": "not measured further: late"}})
    assert made.splitlines()[3:] == ["", "consumer, apache: not measured further: late"]


def test_a_group_that_does_not_settle_is_given_up_and_what_was_measured_before_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "SETTLED_S", 0.0)
    monkeypatch.setattr(groups, "started", _no_node)
    members: Any = [SimpleNamespace(count=2), SimpleNamespace(count=5)]

    def measure(node: Node) -> dict[str, float]:
        try:
            asyncio.run(groups._settled(members, 8, []))
        except groups.Unsettled as error:
            raise groups.Unsettled(str(error), {"formed_s": 1.0}) from error
        raise AssertionError("it has settled")

    assert groups._measured("consumer", "apache", measure) == (
        {"formed_s": 1.0},
        "not measured further: after 0 s 7 of 8 partitions are owned, and 0 of 2 members have their share",
    )


def test_a_broker_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "started", _no_node)

    def measure(node: Node) -> dict[str, float]:
        raise RuntimeError("groups: no leader after 180 s")

    found = groups._measured("consumer", "apache", measure)
    assert found == ({}, "not measured: RuntimeError groups: no leader after 180 s")


@contextmanager
def _no_node(name: str, properties: Mapping[str, str]) -> Iterator[Node]:
    yield Node(name, "127.0.0.1:1", 0, None)
