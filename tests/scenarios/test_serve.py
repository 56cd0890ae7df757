"""`tidelog serve` as a person meets it: the ready line, HTTP, warnings and errors as sentences, a clean stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.testing.wire import Wire

READY = re.compile(
    r"tidelog is ready on (127\.0\.0\.1:\d+), data in (\S+), after \d+ ms; metrics on http://(\S+)/metrics\n"
)
SERVE = [sys.executable, "-m", "tidelog", "serve"]
COMMON = ["--listen", "127.0.0.1:0", "--override", "tidelog.http.listener=127.0.0.1:0"]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")} | dict(extra or {})


@contextmanager
def served(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    process = subprocess.Popen(
        [*SERVE, *COMMON, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(environment),
    )
    try:
        assert process.stdout is not None
        match = READY.fullmatch(process.stdout.readline())
        assert match is not None
        yield process, match
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [*SERVE, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=clean_environment(environment),
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_new_directory_is_formatted_and_sigterm_is_a_clean_stop(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    with served("--data", str(data)) as (process, ready):
        assert ready[2] == str(data)
        assert (data / "meta.properties").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert (data / ".kafka_cleanshutdown").exists()


def test_ready_and_metrics_under_the_names_that_dashboards_know(tmp_path: Path) -> None:
    with served("--data", str(tmp_path)) as (_, ready):
        with Wire(ready[1]) as wire:
            topic = CreateTopicsRequest.CreatableTopic(name="seen", num_partitions=2, replication_factor=1)
            wire.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
            batch = bytes(build_batch([RecordInput(None, b"v", 1)] * 3))
            data = ProduceRequest.PartitionProduceData(index=1, records=batch)
            named = ProduceRequest.TopicProduceData(name="seen", partition_data=[data])
            wire.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[named]), 9, ProduceResponse)
        assert get(ready[3], "/ready") == (200, "serving\n")
        assert get(ready[3], "/elsewhere")[0] == 404
        status, page = get(ready[3], "/metrics")
        assert status == 200
        for line in (
            "kafka_brokers 1",
            'kafka_topic_partitions{topic="seen"} 2',
            'kafka_topic_partition_current_offset{topic="seen",partition="1"} 3',
            'kafka_topic_partition_oldest_offset{topic="seen",partition="1"} 0',
            'kafka_server_brokertopicmetrics_messagesin_total{topic="seen"} 3',
            f'kafka_server_brokertopicmetrics_bytesin_total{{topic="seen"}} {len(batch)}',
            'kafka_network_requestmetrics_requests_total{request="Produce"} 1',
            "kafka_controller_kafkacontroller_activecontrollercount 1",
            "kafka_server_replicamanager_partitioncount 2",
        ):
            assert line in page.splitlines()


def test_settings_from_file_environment_and_options_and_the_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.hours=1\nnum.partitons=9\n")
    data = ("--data", str(tmp_path / "data"))
    with served(str(file), *data, environment={"KAFKA_NUM_PARTITIONS": "3"}) as (process, ready):
        with Wire(ready[1]) as wire:
            topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
            answer = wire.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics[0]
        assert answer.num_partitions == 3
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert errors == (
        f"tidelog serve: warning: {file}, line 3: num.partitons is ignored: it is not a known config; "
        "did you mean num.partitions?\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["--override", "log.segment.bytes=abc"],
            2,
            "log.segment.bytes=abc: expected a whole number of at least 1048576",
        ),
        (
            ["--override", "no-equals"],
            2,
            "--override no-equals: expected KEY=VALUE, such as --override num.partitions=3",
        ),
        (["--listen", "9092"], 2, "--listen 9092: expected HOST:PORT, such as 127.0.0.1:9092"),
        (["/not/there.properties"], 2, "/not/there.properties: cannot read the settings: No such file or directory"),
        (["--override", "listeners=SSL://:9093"], 2, "SSL is not supported yet, only PLAINTEXT is"),
    ],
)
def test_what_cannot_be_started_is_said_in_a_sentence(arguments: list[str], code: int, message: str) -> None:
    status, errors = refused(*arguments)
    assert (status, len(errors.splitlines())) == (code, 1)
    assert message in errors


def test_an_address_that_is_taken_is_said_in_a_sentence(tmp_path: Path) -> None:
    with served("--data", str(tmp_path / "one")) as (_, ready):
        status, errors = refused("--data", str(tmp_path / "two"), "--listen", ready[1])
    assert status == 1
    assert f"cannot listen on {ready[1]}" in errors
