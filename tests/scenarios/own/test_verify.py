"""`tidelog verify` on the directories that nodes leave, ours and Apache Kafka's."""

from __future__ import annotations

import json
import os
import stat
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
from tidelog.protocol.compression import Codec
from tidelog.testing import Broker
from tools.apache import ApacheKafka, why_not


async def work(cluster: Cluster) -> None:
    """Every codec, several segments, indexes with entries, a group's position."""
    configs = {"index.interval.bytes": "100", "segment.bytes": "1048576"}
    await create_topics(cluster, [NewTopic(name="orders", partitions=2, configs=configs)])
    for codec in Codec:
        options = ProducerOptions(compression=codec, idempotence=True, batch_bytes=20_000)
        async with Producer(cluster, options) as producer:
            for number in range(40):
                await producer.send("orders", os.urandom(15_000), b"key", partition=0, timestamp=1000 + number)
    await commit_offsets(cluster, "readers", {TopicPartition("orders", 0): Committed(5, -1, "note")})


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    with Broker(data=tmp_path / "data") as broker:
        with_cluster(broker.bootstrap_servers, work)
    yield tmp_path / "data"


class Verify:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> tuple[str, str]:
        self._capsys.readouterr()
        try:
            found = main(["verify", *map(str, arguments)])
        except SystemExit as exit:
            found = int(str(exit.code))
        output = self._capsys.readouterr()
        assert found == code, f"exit code {found}\n{output.out}{output.err}"
        return output.out, output.err

    def json(self, *arguments: object, code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json", code=code)[0].splitlines()]


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    return Verify(capsys)


def test_a_stopped_node(verify: Verify, data: Path) -> None:
    out, err = verify(data, "--deep")
    assert out.startswith("no damages, no notes: ") and len(out.splitlines()) == 1
    assert err == ""
    (summary,) = verify.json(data)
    assert summary["kind"] == "summary" and summary["damages"] == 0 and summary["segments"] > 4


def test_damage_is_a_line_with_file_place_and_offset_and_exit_code_1(verify: Verify, data: Path) -> None:
    path = sorted((data / "orders-0").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    base = int(path.stem)
    out, _ = verify(data, code=1)
    assert out.splitlines()[0] == f"damage: {path} at byte 0 (offset {base}): the checksum does not match"
    assert out.splitlines()[1].startswith("1 damage, no notes: ")
    finding, summary = verify.json(data, code=1)
    assert finding == {
        "kind": "finding",
        "severity": "damage",
        "file": str(path),
        "what": "the checksum does not match",
        "position": 0,
        "offset": base,
    }
    assert summary["damages"] == 1


def test_nothing_is_written_not_even_into_a_directory_that_allows_none(verify: Verify, data: Path) -> None:
    paths = [data, *data.rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in paths}
    for path in paths:
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    try:
        verify(data)
    finally:
        for path in paths:
            path.chmod(0o700)
    assert {path: path.stat().st_mtime_ns for path in [data, *data.rglob("*")]} == before


def test_a_directory_in_use_is_refused_and_a_node_waits_for_a_check(verify: Verify, tmp_path: Path) -> None:
    with Broker(data=tmp_path):
        out, err = verify(tmp_path, code=1)
    assert (out, err) == (
        "",
        f"tidelog: a node runs on {tmp_path}: stop it first, its files change while they are read\n",
    )

    from tidelog.kernel.errors import DirectoryLockedError
    from tidelog.runtime.dirlock import lock_file, lock_for_reading

    reading = lock_for_reading(f"{tmp_path}/.lock")
    verify(tmp_path)
    with pytest.raises(DirectoryLockedError):
        lock_file(f"{tmp_path}/.lock")
    reading.release()
    lock_file(f"{tmp_path}/.lock").release()


def test_what_is_no_data_directory(verify: Verify, tmp_path: Path) -> None:
    assert "name at least one data directory" in verify(code=2)[1]
    assert f"there is no directory {tmp_path}/nowhere" in verify(f"{tmp_path}/nowhere", code=2)[1]
    assert "is no data directory" in verify(tmp_path, code=2)[1]
    assert list(tmp_path.iterdir()) == []


def test_two_directories_of_one_node_are_held_against_each_other(verify: Verify, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "orders-0").mkdir(parents=True)
    (other / "meta.properties").write_bytes((data / "meta.properties").read_bytes())
    out, _ = verify(data, other, code=1)
    assert f"damage: {other}/orders-0: the partition is also in {data}" in out
    assert f"damage: {other}/meta.properties: has the same directory.id as {data}" in out


@pytest.mark.java
@pytest.mark.timeout(300)
def test_the_directory_of_an_apache_broker(verify: Verify, tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to write with: {missing}")
    logs = tmp_path / "logs"
    with ApacheKafka(tmp_path, heap="384m", properties={"offsets.topic.num.partitions": "2"}) as kafka:
        with_cluster(kafka.bootstrap_servers, work)
        assert "a node runs on" in verify(logs, code=1)[1]
    out, _ = verify(logs, "--deep")
    assert out.startswith("no damages, no notes: "), out
