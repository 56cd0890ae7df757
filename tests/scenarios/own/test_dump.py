"""`tidelog dump` on the files that a node leaves, and side by side with Apache's DumpLogSegments."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.own.conftest import with_cluster
from tidelog.cli.main import main
from tidelog.client.cluster import Cluster
from tidelog.client.group_offsets import Committed, commit_offsets
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer, ProducerOptions
from tidelog.client.topics import NewTopic, create_topics
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.testing import Broker
from tools.apache import run_tool, why_not


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a node that has worked and was stopped."""
    directory = tmp_path_factory.mktemp("data")

    async def work(cluster: Cluster) -> None:
        configs = {"index.interval.bytes": "100"}
        await create_topics(cluster, [NewTopic(name="orders", partitions=2, configs=configs)])
        for codec in Codec:
            options = ProducerOptions(compression=codec, idempotence=True, batch_bytes=400)
            async with Producer(cluster, options) as producer:
                for number in range(20):
                    value = None if number == 7 else f"value {number}".encode()
                    headers = [("h", b"1")] if number == 3 else []
                    await producer.send("orders", value, b"key", headers=headers, partition=0, timestamp=1000 + number)
        await commit_offsets(cluster, "readers", {TopicPartition("orders", 0): Committed(5, -1, "note")})

    with Broker(data=directory) as broker:
        with_cluster(broker.bootstrap_servers, work)
    yield directory


class Dump:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: object, code: int = 0) -> str:
        self._capsys.readouterr()
        found = main(["dump", *map(str, arguments)])
        output = self._capsys.readouterr()
        self.err = output.err
        assert found == code, f"exit code {found}\n{output.out}{output.err}"
        return output.out

    def json(self, *arguments: object, code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json", code=code).splitlines()]


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    return Dump(capsys)


def log_of(data: Path, partition: str) -> Path:
    return sorted((data / partition).glob("*.log"))[0]


def test_batches_and_records(dump: Dump, data: Path) -> None:
    entries = dump.json(log_of(data, "orders-0"), "--records")
    batches = [entry for entry in entries if entry["kind"] == "batch"]
    records = [entry for entry in entries if entry["kind"] == "record"]
    assert [record["offset"] for record in records] == list(range(100))
    assert {batch["compressCodec"] for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert all(batch["isValid"] and batch["baseSequence"] >= 0 for batch in batches)
    assert (records[3]["key"], records[3]["payload"], records[3]["headers"]) == ("key", "value 3", [["h", "1"]])
    assert (records[7]["payload"], records[7]["valueSize"]) == (None, -1)
    assert records[0]["CreateTime"] == 1000
    only = dump.json(log_of(data, "orders-0"), "--from-offset", "50", "-n", "1")
    assert len(only) == 1
    assert only[0]["baseOffset"] <= 50 <= only[0]["lastOffset"]


def test_indexes_point_at_batches(dump: Dump, data: Path) -> None:
    batches = dump.json(log_of(data, "orders-0"))
    places = {batch["lastOffset"]: batch["position"] for batch in batches}
    indexed = dump.json(next((data / "orders-0").glob("*.index")))
    assert indexed
    assert all(places[entry["offset"]] == entry["position"] for entry in indexed)
    times = dump.json(next((data / "orders-0").glob("*.timeindex")))
    assert times
    assert all(entry["timestamp"] == 1000 + entry["offset"] % 20 for entry in times)


def test_producers(dump: Dump, data: Path) -> None:
    (snapshot,) = (data / "orders-0").glob("*.snapshot")
    producers = dump.json(snapshot)
    assert [(one["lastSequence"], one["lastOffset"]) for one in producers] == [
        (19, 19), (19, 39), (19, 59), (19, 79), (19, 99)
    ]  # fmt: skip


def test_text_files(dump: Dump, data: Path) -> None:
    assert dump.json(data / "orders-0" / "leader-epoch-checkpoint")[0]["startOffset"] == 0
    assert len(dump.json(data / "orders-0" / "partition.metadata")[0]["topic_id"]) == 22
    assert dump.json(data / "meta.properties")[0]["node.id"] == "1"
    points = dump.json(data / "recovery-point-offset-checkpoint")
    found = {(one["topic"], one["partition"]): one["offset"] for one in points}
    assert found["orders", 0] == 100


def test_internal_topics_are_explained(dump: Dump, data: Path) -> None:
    metadata = dump.json(*(data / "__cluster_metadata-0").glob("*.log"), "-r")
    types = [entry["type"] for entry in metadata if entry["kind"] == "record"]
    assert {"LEADER_CHANGE", "FeatureLevelRecord", "TopicRecord", "PartitionRecord", "ConfigRecord"} <= set(types)
    (topic,) = (one for one in metadata if one.get("type") == "TopicRecord" and one["payload"]["name"] == "orders")
    assert topic["payload"]["topic_id"] == dump.json(data / "orders-0" / "partition.metadata")[0]["topic_id"]
    commits = [
        entry
        for directory in sorted(data.glob("__consumer_offsets-*"))
        for entry in dump.json(*directory.glob("*.log"), "-r")
        if entry.get("type") == "OffsetCommit"
    ]
    assert [(one["key"]["group"], one["payload"]["offset"], one["payload"]["metadata"]) for one in commits] == [
        ("readers", 5, "note")
    ]
    raw = dump.json(*(data / "__cluster_metadata-0").glob("*.log"), "-r", "--decoder", "raw")
    assert not any(entry.get("type") == "TopicRecord" for entry in raw)


def test_a_directory_stands_for_its_files(dump: Dump, data: Path) -> None:
    shown = dump(data / "orders-0")
    files = [line.removeprefix("Dumping ") for line in shown.splitlines() if line.startswith("Dumping ")]
    assert {Path(file).suffix for file in files} >= {".log", ".index", ".timeindex", ".snapshot", ".metadata"}
    assert re.search(r"^baseOffset: 0 lastOffset: \d+ count: \d+ ", shown, re.M)


class TestDamage:
    def test_a_torn_tail(self, dump: Dump, data: Path, tmp_path: Path) -> None:
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(log_of(data, "orders-0").read_bytes()[:-3])
        assert "is cut off after" in dump.json(path, code=1)[-1]["problem"]
        path.write_bytes(build_batch([RecordInput(None, b"x", 1)]) + b"junk")
        assert "4 bytes that are no batch" in dump.json(path, code=1)[-1]["problem"]
        path.write_bytes(bytes(1000))
        assert "format 0 (or zeros)" in dump.json(path, code=1)[-1]["problem"]

    def test_a_flipped_bit(self, dump: Dump, tmp_path: Path) -> None:
        batch = build_batch([RecordInput(None, b"x", 1)])
        batch[-2] ^= 1
        path = tmp_path / "0.log"
        path.write_bytes(batch)
        (entry,) = dump.json(path, code=1)
        assert (entry["isValid"], entry["problem"]) == (False, "the checksum does not match")

    def test_a_marker(self, dump: Dump, tmp_path: Path) -> None:
        marker = RecordInput(b"\0\0\0\1", b"\0\0\0\0\0\7", 1)
        path = tmp_path / "0.log"
        path.write_bytes(build_batch([marker], attributes=TRANSACTIONAL | CONTROL, producer_id=9, producer_epoch=1))
        _, record = dump.json(path, "-r")
        assert (record["type"], record["payload"]["coordinator_epoch"]) == ("COMMIT", 7)

    def test_other_files(self, dump: Dump, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello")
        dump(tmp_path / "notes.txt", code=1)
        assert "no file that a log directory holds" in dump.err
        dump(tmp_path / "0.log", code=1)
        assert "No such file or directory" in dump.err
        (tmp_path / "0.index").write_bytes(b"12345")
        dump(tmp_path / "0.index", code=1)
        assert "not a whole number of entries" in dump.err
        (tmp_path / "0.snapshot").write_bytes(b"\0\1" + bytes(20))
        dump(tmp_path / "0.snapshot", code=1)
        assert "damaged" in dump.err
        (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n5\n")
        dump(tmp_path / "leader-epoch-checkpoint", code=1)
        assert "does not have the fields epoch, startOffset" in dump.err

    def test_an_index_with_the_zeros_of_a_running_broker(self, dump: Dump, tmp_path: Path) -> None:
        path = tmp_path / "00000000000000000100.index"
        path.write_bytes(b"\0\0\0\5\0\0\0\x64" + bytes(800))
        assert dump.json(path) == [{"file": str(path), "kind": "entry", "offset": 105, "position": 100}]


@pytest.mark.java
def test_apache_sees_the_same_batches(dump: Dump, data: Path) -> None:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to compare with: {missing}")
    path = log_of(data, "orders-0")
    text = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", os.fspath(path))
    theirs = [dict(re.findall(r"(\S+): (\S+)", line)) for line in text.splitlines() if line.startswith("baseOffset")]
    ours = dump.json(path)
    assert len(theirs) == len(ours) > 5
    same = ("baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId", "producerEpoch")
    same += ("partitionLeaderEpoch", "position", "CreateTime", "size", "magic", "crc")
    for their, our in zip(theirs, ours, strict=True):
        assert {name: their[name] for name in same} == {name: str(our[name]) for name in same}
        assert their["compresscodec"] == our["compressCodec"]
        assert their["isvalid"] == "true"
