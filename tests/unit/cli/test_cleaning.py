"""What `tidelog topic describe` tells of compacted topics: from a page of metrics, and where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tidelog.cli import cleaning
from tidelog.cli.cleaning import Cleaning, CleaningPages, read_page
from tidelog.client.configs import ConfigEntry, ConfigSource
from tidelog.client.metadata import BrokerAddress, ClusterMetadata, PartitionInfo, TopicInfo

PAGE = """# HELP tidelog_log_dirty_ratio Dirty part of a compacted log.
# TYPE tidelog_log_dirty_ratio gauge
tidelog_node_info{cluster_id="ours",node_id="1"} 1
tidelog_log_dirty_ratio{topic="c",partition="0"} 0.25
tidelog_log_dirty_ratio{topic="c",partition="1"} 0.5
tidelog_log_dirty_ratio{topic="cc",partition="0"} 0.75
tidelog_log_last_clean_timestamp_seconds{topic="c",partition="0"} 1700000000.5
tidelog_log_uncleanable{topic="c",partition="1"} 1
kafka_log_log_size{topic="c",partition="0"} 17
"""


def entry(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, ConfigSource.DEFAULT_CONFIG, False, False)


COMPACTED = (entry("cleanup.policy", "compact,delete"),)
TOPIC = TopicInfo("c", b"", False, {n: PartitionInfo(n, 1 if n < 3 else -1, 0, (1,), (1,), ()) for n in range(4)})


class StandIn:
    metadata = ClusterMetadata("ours", 1, {1: BrokerAddress(1, "127.0.0.1", 9092, None)})


def told(monkeypatch: pytest.MonkeyPatch, listener: Callable[[int], str], answer: str | None) -> dict[int, Cleaning]:
    """Of the topic, when the node tells this listener and whoever is there sends the answer, or nothing at all."""
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()  # until the other side has had enough
        else:
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n{answer}".encode())
        writer.close()

    async def main() -> dict[int, Cleaning]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def describe_configs(*_: Any) -> list[ConfigEntry]:
            return [entry("tidelog.http.listener", listener(port))]

        monkeypatch.setattr("tidelog.client.configs.describe_configs", describe_configs)
        async with server:
            pages = CleaningPages(cast(Any, StandIn()))
            found = await pages.cleaning_of(TOPIC, COMPACTED)
            assert await pages.cleaning_of(TOPIC, COMPACTED) == found
            assert await pages.cleaning_of(TOPIC, (entry("cleanup.policy", "delete"),)) == {}
        assert asked <= 1, "one page is enough for all topics"
        return found

    return asyncio.run(main())


def test_the_samples_of_the_topic_are_found() -> None:
    assert read_page(PAGE, "c") == {0: Cleaning(0.25, 1_700_000_000_500), 1: Cleaning(0.5, None, True)}
    assert read_page(PAGE, "d") == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::]"])
def test_each_partition_has_what_its_leader_tells(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    found = told(monkeypatch, lambda port: f"{host}:{port}", PAGE)
    assert [found[n].as_text() for n in range(4)] == [
        "\tDirty: 0.25\tCleaned: 2023-11-14T22:13:20.500Z",
        "\tDirty: 0.50\tCleaned: uncleanable",
        "\tDirty: -\tCleaned: -",
        "\tDirty: unknown\tCleaned: unknown (no leader)",
    ]


def why(found: dict[int, Cleaning]) -> str:
    assert found[0] == found[1] == found[2]
    assert found[0].unknown is not None
    return found[0].unknown


def test_metrics_of_somebody_else_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is an address of the node's own machine: from another one it may be somebody else's."""
    for page in (PAGE.replace("ours", "theirs"), PAGE.replace('node_id="1"', 'node_id="2"'), "up 1\n"):
        assert why(told(monkeypatch, lambda port: f"127.0.0.1:{port}", page)).endswith("is not of node 1")


@pytest.mark.parametrize("listener", ["", "127.0.0.1:0"])
def test_a_node_without_an_address_is_told(monkeypatch: pytest.MonkeyPatch, listener: str) -> None:
    assert "node 1 has no tidelog.http.listener" in why(told(monkeypatch, lambda _: listener, PAGE))


def test_nobody_waits_for_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "_TIMEOUT_S", 0.05)
    found = why(told(monkeypatch, lambda port: f"127.0.0.1:{port}", None))
    assert found == "node 1 has not shown its metrics within 0.05 s"


def test_an_address_where_nobody_listens_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = why(told(monkeypatch, lambda _: "127.0.0.1:1", PAGE))
    assert found == "127.0.0.1:1 cannot be reached"
