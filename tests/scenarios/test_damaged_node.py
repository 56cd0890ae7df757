"""A whole node, simulated, on a directory with one damaged file: it comes up with every topic and record, or it refuses
to start with a sentence that names the file; and verify names the damage in either case (F12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import pytest

from tests.unit.log.helpers import tree
from tests.unit.log.stopped import change
from tidelog.client.errors import BrokerError
from tidelog.client.fetching import fetch
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce_once
from tidelog.client.topics import NewTopic, create_topics
from tidelog.kernel.errors import TidelogError
from tidelog.log.verify.directory import DirectoryCheck
from tidelog.log.verify.report import Finding, Report
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers, iter_records
from tidelog.raft.verify import check_metadata_log
from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import run
from tidelog.testing.simulation import SimulatedWorld

TOPICS = ("a", "b")
RECORDS = 20
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1"}
"""One with each change of the metadata."""
HELD = {"snapshot": TOPICS, "behind": TOPICS[:1]}
"""The topics that the metadata snapshot knows; others are in the log behind it."""


@cache
def left(how: str) -> SimDisk:
    """The disk of a node that had two topics and was stopped, or killed, or killed with a metadata snapshot."""

    async def scenario() -> SimDisk:
        world, held = SimulatedWorld(1), HELD.get(how, ())
        if held:
            world.disk = await snapshotted(held)
        await world.start()
        async with world.client("writer") as cluster:
            for topic in TOPICS[len(held) :]:
                await create_topics(cluster, [NewTopic(name=topic, partitions=1)])
            for number in range(RECORDS):
                for topic in TOPICS:
                    batch = build_batch([RecordInput(None, f"{topic} {number}".encode(), 1000 + number)])
                    await produce_once(cluster, TopicPartition(topic, 0), bytes(batch), acks=-1)
            await asyncio.sleep(150)  # until the recovery points are written
        if how == "stopped":
            await world.stop()
        else:
            world.kill()
        return world.disk

    return run(scenario())


async def snapshotted(topics: Sequence[str]) -> SimDisk:
    """The disk of a node with these topics and a snapshot of all its metadata; whoever starts next writes none."""
    world = SimulatedWorld(0, config=SNAPSHOTS)
    await world.start()
    async with world.client("first") as cluster:
        for topic in topics:
            await create_topics(cluster, [NewTopic(name=topic, partitions=1)])
    world.kill()
    return world.disk


async def read_all(world: SimulatedWorld) -> dict[str, list[bytes] | str]:
    found: dict[str, list[bytes] | str] = {}
    async with world.client("reader") as cluster:
        for topic in TOPICS:
            values: list[bytes] = []
            try:
                while len(values) < RECORDS:
                    data = (await fetch(cluster, TopicPartition(topic, 0), len(values))).records
                    for position, header in iter_headers(data):
                        batch = data[position : position + header.size]
                        values += [record.value or b"" for record in iter_records(batch, header)]
                    if not data:
                        break
                found[topic] = values
            except BrokerError as error:
                found[topic] = str(error)
    return found


def outcome(disk: SimDisk) -> tuple[str, dict[str, list[bytes] | str], list[str]]:
    """("", what is read), or the sentence of a start that was refused; and the names in the directory afterwards."""

    async def scenario() -> tuple[str, dict[str, list[bytes] | str], list[str]]:
        world = SimulatedWorld(2)
        world.disk = disk
        try:
            await world.start()
        except TidelogError as error:
            return str(error), {}, []
        found = await read_all(world)
        await world.stop()
        return "", found, world.disk.list_dir("/data")

    return run(scenario())


def findings(disk: SimDisk) -> list[Finding]:
    found: list[Finding] = []
    DirectoryCheck(disk, "/data", Report(found.append), metadata=check_metadata_log).run()
    return found


def expected() -> dict[str, list[bytes]]:
    return {topic: [f"{topic} {number}".encode() for number in range(RECORDS)] for topic in TOPICS}


def flip(random: Random) -> Callable[[bytearray], object]:
    def how(data: bytearray) -> None:
        bit = random.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8

    return how


def cut(random: Random) -> Callable[[bytearray], object]:
    return lambda data: data.__delitem__(slice(random.randrange(len(data)), None))


METADATA = "/data/__cluster_metadata-0"
HOW = ("stopped", "killed", *HELD)


def files(disk: SimDisk) -> list[str]:
    """One of each kind; the logs of partitions have tests of their own."""
    names = [path for path, content in sorted(tree(disk, "/data").items()) if content]
    return [path for path in names if "/b-0/" not in path and not path.endswith("/.lock")]


def is_lost_end(path: str, how: str, kind: str) -> bool:
    """Whether a topic may be lost with the end of the metadata log. With all of it only behind a snapshot: without one
    the node does not start."""
    is_log = path.startswith(f"{METADATA}/") and path.endswith(".log")
    return is_log and (how == "behind" or (how == "killed" and kind != "missing"))


@pytest.mark.parametrize("how", HOW)
def test_undamaged(how: str) -> None:
    disk = left(how).crash(keep_page_cache=True)
    assert [finding for finding in findings(disk) if finding.severity == "damage"] == []
    assert outcome(disk)[:2] == ("", expected())


@pytest.mark.parametrize("kind", ["flip", "cut", "missing"])
@pytest.mark.parametrize("how", HOW)
def test_one_damage(how: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    for path in files(left(how).crash(keep_page_cache=True)):
        for seed in range(1 if kind == "missing" else 2):
            disk = left(how).crash(keep_page_cache=True)
            random = Random(f"{path}-{seed}")
            if kind == "missing":
                disk.remove(path)
            else:
                change(disk, path, (flip if kind == "flip" else cut)(random))
            told = findings(disk)
            caplog.clear()
            refusal, found, names = outcome(disk)
            where = f"{kind} of {path}, {how}, seed {seed}"
            if refusal:
                assert "/data/" in refusal, where
                assert told, where
                continue
            for topic, values in expected().items():
                if found[topic] == values:
                    continue
                assert told, where
                if topic not in HELD.get(how, ()) and is_lost_end(path, how, kind):
                    # A crash may tear its last batch, so that one is cut; what it told of is kept, out of the way.
                    assert any(name.startswith(f"{topic}-0.") and name.endswith("-stray") for name in names), where
                    assert f"{topic}-0 is not in the metadata: kept as /data/{topic}-0." in caplog.text, where
                else:
                    assert "CORRUPT_MESSAGE" in str(found[topic]), f"{where}: {found[topic]!r}"


def test_a_topic_that_went_with_the_metadata_log_behind_a_snapshot_is_kept_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = left("behind").crash(keep_page_cache=True)
    for path in tree(disk, METADATA):
        if path.endswith(".log"):
            disk.remove(path)
    refusal, found, names = outcome(disk)
    assert (refusal, found["a"]) == ("", expected()["a"])
    (stray,) = [name for name in names if name.endswith("-stray")]
    assert f"b-0 is not in the metadata: kept as /data/{stray}" in caplog.text


def test_what_was_set_aside_is_served_again_with_its_name_and_the_metadata_of_before() -> None:
    """As docs/recovery.md tells."""

    async def scenario() -> dict[str, list[bytes] | str]:
        world = SimulatedWorld(2)
        world.disk = left("behind").crash(keep_page_cache=True)
        backup = tree(world.disk, METADATA)
        for path in backup:
            if path.endswith(".log"):
                world.disk.remove(path)
        await world.start()
        await world.stop()
        for path in tree(world.disk, METADATA):
            world.disk.remove(path)
        for path, content in backup.items():
            world.disk.replace_file(path, content or b"")
        (stray,) = [name for name in world.disk.list_dir("/data") if name.endswith("-stray")]
        world.disk.rename(f"/data/{stray}", "/data/b-0")
        await world.start()
        return await read_all(world)

    assert run(scenario()) == expected()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_topic_id_with_one_wrong_letter_is_mended_and_one_of_another_topic_is_not(how: str) -> None:
    path = "/data/a-0/partition.metadata"
    disk = left(how).crash(keep_page_cache=True)
    whole = disk.read_file(path)
    change(disk, path, lambda data: data.__setitem__(-5, ord("A") if data[-5] != ord("A") else ord("B")))
    assert [finding.file for finding in findings(disk) if finding.severity == "damage"] == [path]

    async def scenario(disk: SimDisk) -> tuple[dict[str, list[bytes] | str], SimDisk]:
        world = SimulatedWorld(2)
        world.disk = disk
        await world.start()
        found = await read_all(world)
        await world.stop()
        return found, world.disk

    found, after = run(scenario(disk))
    assert found == expected() and after.read_file(path) == whole
    disk = left(how).crash(keep_page_cache=True)
    disk.replace_file(path, disk.read_file("/data/b-0/partition.metadata") or b"")
    assert [finding.file for finding in findings(disk) if finding.severity == "damage"] == [path]
    found, after = run(scenario(disk))
    assert found["b"] == expected()["b"] and found["a"] == []
    assert any(name.startswith("a-0.") and name.endswith("-stray") for name in after.list_dir("/data"))
