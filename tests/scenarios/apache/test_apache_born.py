"""A directory that Apache Kafka 4.3.1 formatted as its quick start says (kraft.version 1, the voters in the log) and
filled, with all its features on: Tidelog serves it, adds to it, and Apache opens it again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.scenarios.apache.content import HOUR_MS, IdempotentProducer, fill, take_part, wait_for_partitions
from tests.scenarios.apache.observing import Observed, observe
from tests.scenarios.apache.stages import Directory, Stay, at_apache, at_tidelog, times, work
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tidelog.testing.wire import Wire
from tools.apache import why_not

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
MODERN, SHARE = "modern", "shared"
_MODERN_PROTOCOL = {"group.protocol": "consumer"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to exchange directories with: {missing}")
    home = tmp_path_factory.mktemp("apache-born")
    data = [home / "one", home / "two"]
    start_ms = int(time.time() * 1000) - HOUR_MS
    with at_apache(home / "first", data, standalone=True) as kafka:
        bootstrap = kafka.bootstrap_servers
        fill(bootstrap, start_ms)
        take_part(bootstrap, MODERN, "plain", **_MODERN_PROTOCOL)
        join_share_group(bootstrap)
        producer = IdempotentProducer(bootstrap)
        assert [producer.send(bootstrap, number, start_ms)[0] for number in range(3)] == [ErrorCode.NONE] * 3
        left = observe(bootstrap, times=times(start_ms))
    found = places(data)
    (home / "places.json").write_text(json.dumps(found))
    return Directory(home, data, start_ms, producer, left)


def join_share_group(bootstrap: str) -> None:
    request = ShareGroupHeartbeatRequest(
        group_id=SHARE, member_id=str(uuid4()), member_epoch=0, subscribed_topic_names=["plain"]
    )
    deadline = time.monotonic() + 20
    with Wire(bootstrap) as wire:
        while (answer := wire.call(request, 1, ShareGroupHeartbeatResponse)).error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
    wait_for_partitions(bootstrap, {"__share_group_state": 50})


@pytest.fixture(scope="module")
def tidelog(directory: Directory) -> Stay:
    with at_tidelog(directory.data, {"metadata.log.max.record.bytes.between.snapshots": "1"}) as broker:
        bootstrap = broker.bootstrap_servers
        arrived = observe(bootstrap, times=directory.times)
        with Wire(bootstrap) as wire:
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            answer = wire.call(request, 4, ApiVersionsResponse)
        assert [feature.name for feature in answer.finalized_features] == [
            "group.version",
            "metadata.version",
            "transaction.version",
        ]
        sent = work(bootstrap, "tidelog", directory, 3)
        take_part(bootstrap, MODERN, "of-tidelog", until=30)
        left = observe(bootstrap, times=directory.times)
    return Stay(arrived, left, sent, log=broker.log)


@pytest.fixture(scope="module")
def apache_again(directory: Directory, tidelog: Stay) -> Stay:
    with at_apache(directory.home / "second", directory.data, standalone=True) as kafka:
        bootstrap = kafka.bootstrap_servers
        arrived = observe(bootstrap, times=directory.times)
        sent = work(bootstrap, "apache-again", directory, 4)
        take_part(bootstrap, MODERN, "of-apache-again", until=30, **_MODERN_PROTOCOL)
        return Stay(arrived, observe(bootstrap, times=directory.times), sent)


def places(data: list[Path]) -> dict[str, str]:
    """In which directory each partition lies; whatever was set aside or deleted has a name of its own."""
    return {path.name: parent.name for parent in data for path in parent.iterdir() if path.is_dir()}


def without_modern(observed: Observed) -> Observed:
    """Apache answers the older DescribeGroups with Dead for groups of the newer protocols."""
    classic = {name: group for name, group in observed.groups.items() if name not in (MODERN, SHARE)}
    committed = {name: found for name, found in observed.committed.items() if name != SHARE}
    return observed._replace(groups=classic, committed=committed)


@pytest.mark.parametrize("field", Observed._fields)
def test_tidelog_shows_what_apache_stored(directory: Directory, tidelog: Stay, field: str) -> None:
    assert getattr(without_modern(tidelog.arrived), field) == getattr(without_modern(directory.left), field)


@pytest.mark.parametrize("field", Observed._fields)
def test_apache_shows_it_all_again(tidelog: Stay, apache_again: Stay, field: str) -> None:
    assert getattr(without_modern(apache_again.arrived), field) == getattr(without_modern(tidelog.left), field)


def test_every_partition_stays_in_its_directory(directory: Directory, apache_again: Stay) -> None:
    before = json.loads((directory.home / "places.json").read_text())
    after = places(directory.data)
    kept = {name: place for name, place in before.items() if not name.endswith("-delete")}
    assert {name: place for name, place in after.items() if name in kept} == kept
    assert set(kept.values()) == {"one", "two"}
    assert not [name for name in after if name.endswith("-stray")]


def test_the_idempotent_producer_goes_on(tidelog: Stay, apache_again: Stay) -> None:
    assert tidelog.sent == [(ErrorCode.NONE, 2), (ErrorCode.NONE, 3)]
    assert apache_again.sent == [(ErrorCode.NONE, 3), (ErrorCode.NONE, 4)]


def test_internal_topics_are_those_of_apache(directory: Directory, tidelog: Stay) -> None:
    names = ("__consumer_offsets", "__share_group_state")
    assert {name: tidelog.arrived.topics[name][1] for name in names} == dict.fromkeys(names, 50)


def test_groups_of_newer_protocols_are_told_of_and_their_offsets_served(tidelog: Stay) -> None:
    assert f"committed offsets served: {SHARE}" in tidelog.log
    assert tidelog.arrived.committed[MODERN]["plain", 0].offset == 90


def test_a_group_became_classic_at_tidelog_and_modern_again_at_apache(tidelog: Stay, apache_again: Stay) -> None:
    assert tidelog.left.groups[MODERN].protocol_type == "consumer"
    assert apache_again.arrived.groups[MODERN] == tidelog.left.groups[MODERN]
    assert apache_again.left.groups[MODERN].state == "Dead", "as the older DescribeGroups sees the newer protocol"
    committed = apache_again.left.committed[MODERN]
    assert (committed["of-tidelog", 1].offset, committed["of-apache-again", 1].offset) == (30, 30)
