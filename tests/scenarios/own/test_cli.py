"""The commands on a real broker: on Tidelog, and the same on Apache Kafka."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, ItemsView, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.main import main
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.testing.wire import Wire

_numbers = itertools.count(1)
HOUR_MS = 3_600_000


class Cli:
    """Runs commands in this process and keeps what they print."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        try:
            found = main([*arguments, "--bootstrap-server", self.bootstrap])
        except SystemExit as exit:
            found = int(exit.code or 0)
        output = self._capsys.readouterr()
        self.err = output.err
        assert "Traceback" not in self.err
        assert found == code, f"{arguments}: exit code {found}\n{output.out}{output.err}"
        return output.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def until(self, holds: Callable[[ItemsView[str, str]], bool], *arguments: str) -> None:
        """Ask for configs again until it holds: Apache's broker hears of a change after the controller has answered.
        The test's own time limit is the end."""
        while not holds({one["name"]: one["value"] for one in self.json(*arguments)}.items()):
            pass

    def rows(self, *arguments: str) -> list[list[str]]:
        return [line.split() for line in self(*arguments).splitlines()]


def heeding_ctrl_c(*arguments: str) -> list[str]:
    """`tidelog` as from a terminal: a child of tests in the background would inherit that SIGINT is ignored."""
    heed = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    return [sys.executable, "-c", f"{heed}runpy.run_module('tidelog', run_name='__main__')", *arguments]


@pytest.fixture
def cli(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(bootstrap, capsys)


@pytest.fixture
def name() -> str:
    return f"cli-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Let a command read a text from its standard input."""
    path = tmp_path / "input"
    path.touch()
    with path.open("r") as file:
        monkeypatch.setattr(sys, "stdin", file)

        def write(text: str) -> None:
            path.write_text(text)

        yield write


class TestTopic:
    def test_create_list_describe_delete(self, cli: Cli, name: str) -> None:
        created = cli("topic", "create", name, "-p", "3", "-c", "retention.ms=1000000", "--replication-factor", "1")
        assert created == f"created topic {name} with 3 partitions, replication factor 1\n"
        cli("topic", "create", name, code=1)
        assert "already exists (TOPIC_ALREADY_EXISTS)" in cli.err
        assert cli("topic", "create", name, "--if-not-exists") == ""
        assert name in cli("topic", "list").split()
        assert cli("topic", "list", f"{name}.*", "-l").split()[-3:] == [name, "3", "1"]
        assert [topic["topic"] for topic in cli.json("topic", "list", name)] == [name]
        assert cli("topic", "list", "nothing-.*") == ""
        lines = cli("topic", "describe", name).splitlines()
        head = r"Topic: (\S+)\tTopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: (\S*)"
        assert (found := re.fullmatch(head, lines[0]))
        assert found[1] == name
        assert "retention.ms=1000000" in found[2].split(",")
        assert lines[1] == f"\tTopic: {name}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1"
        assert len(lines) == 4
        assert cli("topic", "delete", name) == f"deleted topic {name}\n"
        cli("topic", "delete", name, code=1)
        assert "there is no such topic" in cli.err
        assert cli("topic", "delete", name, "--if-exists") == ""

    def test_how_clean_it_is_cannot_be_told_without_metrics(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name, "-p", "1", "-c", "cleanup.policy=compact")
        head, line = cli("topic", "describe", name).splitlines()
        assert "cleanup.policy=compact" in head
        assert line.endswith("\tDirty: unknown\tCleaned: unknown (node 1 has no tidelog.http.listener)")
        [partition] = cli.json("topic", "describe", name)[0]["partitions"]
        assert partition["dirty_ratio"] is partition["last_clean_ms"] is None
        assert partition["cleaning_unknown"] == "node 1 has no tidelog.http.listener"

    def test_a_name_that_was_mistyped(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        cli("topic", "describe", f"{name}x", code=1)
        assert f"there is no such topic (UNKNOWN_TOPIC_OR_PARTITION), did you mean '{name}'?" in cli.err
        cli("topic", "delete", f"{name}x", code=1)
        assert f"did you mean '{name}'" in cli.err

    def test_mistakes_in_creating(self, cli: Cli, name: str) -> None:
        cli("topic", "create", "no good", code=1)
        assert "INVALID_TOPIC_EXCEPTION" in cli.err
        cli("topic", "create", name, "-r", "9", code=1)
        assert "INVALID_REPLICATION_FACTOR" in cli.err
        cli("topic", "create", name, "-c", "retention.msec=1", code=1)
        assert "INVALID_CONFIG" in cli.err
        assert cli("topic", "create", name, "--dry-run", "-p", "2").startswith(f"would create topic {name} with 2")
        assert name not in cli("topic", "list").split()

    def test_alter_and_grow(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name, "-c", "retention.ms=1000000")
        changed = cli("topic", "alter", name, "-c", "segment.ms=777", "--delete-config", "retention.ms", "-p", "2")
        assert changed == f"changed configs of topic {name}\ngrew topic {name} to 2 partitions\n"
        assert cli("topic", "grow", name, "--partitions", "4") == f"grew topic {name} to 4 partitions\n"
        cli("topic", "grow", name, "--partitions", "3", code=1)
        assert "INVALID_PARTITIONS" in cli.err
        while len(cli.json("topic", "describe", name)[0]["partitions"]) < 4:
            pass
        configs = cli.json("topic", "describe", name)[0]["configs"]
        assert (configs.get("segment.ms"), configs.get("retention.ms")) == ("777", None)

    def test_trim(self, cli: Cli, name: str, tmp_path: Path) -> None:
        cli("topic", "create", name, "-p", "2")
        for hour in (1, 2, 3):
            cli("produce", name, "x", "-p", "0", "--timestamp", str(hour * HOUR_MS))
        planned = cli("topic", "trim", f"{name}:0", "--before-offset", "2", "--dry-run").splitlines()[1].split()
        assert planned == [name, "0", "0", "2"]
        assert (
            cli("topic", "trim", f"{name}:0", "--before-time", "1970-01-01T02:00:00")
            == f"{name}-0 begins at offset 1\n"
        )
        places = tmp_path / "places.json"
        places.write_text(json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 2}], "version": 1}))
        assert cli("topic", "trim", "--offset-json-file", str(places)) == f"{name}-0 begins at offset 2\n"
        assert cli("topic", "trim", name, "--all") == f"{name}-0 begins at offset 3\n{name}-1 begins at offset 0\n"
        described = cli.json("topic", "describe", name, "--offsets")[0]["partitions"]
        assert [(one["start_offset"], one["end_offset"]) for one in described] == [(3, 3), (0, 0)]
        cli("topic", "trim", f"{name}:0", "--before-offset", "9", code=1)
        assert "OFFSET_OUT_OF_RANGE" in cli.err
        cli("topic", "trim", f"{name}:7", "--all", code=1)
        assert "there is no such partition" in cli.err


class TestConfig:
    def test_get_set_unset(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        cli("config", "set", "topic", name, "retention.ms=7000", "--append", "cleanup.policy=compact")
        cli.until({"retention.ms": "7000"}.items().__le__, "config", "get", "topic", name)
        rows = cli.rows("config", "get", "topic", name, "retention.ms", "cleanup.policy")
        assert rows == [
            ["NAME", "VALUE", "SOURCE"],
            ["cleanup.policy", "delete,compact", "DYNAMIC_TOPIC_CONFIG"],
            ["retention.ms", "7000", "DYNAMIC_TOPIC_CONFIG"],
        ]
        cli("config", "set", "topic", name, "--subtract", "cleanup.policy=delete", "retention.ms=5", "--dry-run")
        assert cli.json("config", "get", "topic", name, "cleanup.policy")[0]["value"] == "delete,compact"
        cli("config", "unset", "topic", name, "retention.ms")
        cli.until(lambda values: "retention.ms" not in dict(values), "config", "get", "topic", name)
        shown = cli.json("config", "get", "topic", name, "retention.ms", "--synonyms", "--docs")[0]
        assert (shown["value"], shown["default"], shown["source"]) == ("604800000", True, "DEFAULT_CONFIG")
        assert shown["documentation"]
        assert len(cli.json("config", "get", "topic", name, "--all")) > 25

    def test_mistakes(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        cli("config", "set", "topic", name, "retention.ms=soon", code=1)
        assert "INVALID_CONFIG" in cli.err
        cli("config", "get", "topic", f"{name}-not", code=1)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in cli.err
        cli("config", "get", "topic", name, "retention.msec", code=2)
        assert f"topic {name} has no config 'retention.msec'" in cli.err

    def test_brokers(self, cli: Cli) -> None:
        assert cli.json("config", "get", "broker", "1", "node.id")[0]["value"] == "1"
        cli("config", "set", "broker", "default", "log.cleaner.threads=2")
        cli.until({"log.cleaner.threads": "2"}.items().__le__, "config", "get", "broker", "default")
        cli("config", "unset", "broker", "default", "log.cleaner.threads")
        cli.until(lambda values: "log.cleaner.threads" not in dict(values), "config", "get", "broker", "default")


class TestProduceAndConsume:
    def test_arguments_go_out_and_come_back(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        cli("produce", name, "one", "two", "-k", "key", "-H", "a=1", "-H", "b=", "-v")
        assert cli.err == f"wrote 2 records to {name}\n"
        assert cli("consume", name, "--from-beginning", "-e") == "one\ntwo\n"
        assert cli.err == "Processed a total of 2 messages\n"
        shown = cli("consume", name, "-o", "1", "-n", "1", "--print", "partition,offset,headers,key,value", "-q")
        assert shown == "Partition:0\tOffset:1\ta:1,b:\tkey\ttwo\n"
        assert cli.err == ""

    def test_keys_land_where_java_puts_them(self, cli: Cli, name: str, tmp_path: Path) -> None:
        cli("topic", "create", name, "-p", "7")
        lines = tmp_path / "lines"
        lines.write_text("21=a\nfoobar=b\nabc=NULL\n")
        placed = cli("produce", name, "-K", "=", "--null", "NULL", "-f", str(lines), "-v").splitlines()
        # Utils.toPositive(Utils.murmur2(key)) % 7, computed by Java
        assert [line.split("\t")[1] for line in placed] == ["Partition:3", "Partition:0", "Partition:4"]
        records = [json.loads(line) for line in cli("consume", name, "--from-beginning", "-e", "--json").splitlines()]
        assert {record["key"]: record["value"] for record in records} == {"21": "a", "foobar": "b", "abc": None}

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_lines_of_standard_input(self, cli: Cli, name: str, codec: str, typed: Callable[[str], None]) -> None:
        cli("topic", "create", name)
        typed("".join(f"line {number}\n" for number in range(500)) + "the last has no end")
        cli("produce", name, "-z", codec, "--idempotent", "--acks", "all")
        lines = cli("consume", name, "--from-beginning", "-e").splitlines()
        assert lines == [f"line {number}" for number in range(500)] + ["the last has no end"]

    def test_json_copies_a_topic(self, cli: Cli, name: str, typed: Callable[[str], None]) -> None:
        for topic in (name, f"{name}-copy"):
            cli("topic", "create", topic, "-p", "2")
        cli("produce", name, "v", "-k", "k", "-H", "h=1", "--timestamp", "5000", "-p", "1")
        cli("produce", name, "--tombstone", "-k", "k", "-p", "0")
        lines = cli("consume", name, "--from-beginning", "-e", "--json")
        typed(lines)
        cli("produce", f"{name}-copy", "--json", "--keep-partitions")
        copied = cli("consume", f"{name}-copy", "--from-beginning", "-e", "--json")
        assert sorted(copied.replace("-copy", "").splitlines()) == sorted(lines.splitlines())

    def test_a_bad_line_is_named_and_what_came_before_is_written(
        self, cli: Cli, name: str, typed: Callable[[str], None]
    ) -> None:
        cli("topic", "create", name)
        typed("a:1\nb:2\nno separator\n")
        cli("produce", name, "-K", ":", code=1)
        assert cli.err == f"wrote 2 records to {name}\ntidelog: line 3 has no ':' between a key and a value\n"
        assert cli("consume", name, "--from-beginning", "-e") == "1\n2\n"

    def test_a_record_that_is_refused(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name, "-c", "max.message.bytes=500")
        cli("produce", name, "fits", "x" * 1000, "fits too", code=1)
        assert "a record was not written: " in cli.err
        assert "MESSAGE_TOO_LARGE" in cli.err
        assert f"wrote 2 records to {name}, 1 failed" in cli.err

    def test_where_to_begin(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        for hour in range(1, 6):
            cli("produce", name, f"at {hour}", "--timestamp", str(hour * HOUR_MS), "-q")

        def shown(*options: str) -> list[str]:
            return cli("consume", name, "-e", "-f", r"%o\n", *options).split()

        assert shown("-o", "earliest") == ["0", "1", "2", "3", "4"]
        assert shown("-o", "3") == ["3", "4"]
        assert shown("-o", "-2") == ["3", "4"]
        assert shown("-o", "-99") == ["0", "1", "2", "3", "4"]
        assert shown("-o", "latest") == []
        assert shown("--from-time", "1970-01-01T04:00:00") == ["3", "4"]
        assert shown("-o", f"@{5 * HOUR_MS}") == ["4"]
        assert shown("-o", f"s@{9 * HOUR_MS}") == []
        assert shown("-p", "0", "-o", "4") == ["4"]

    def test_it_stops_when_nothing_comes(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        assert cli("consume", name, "--timeout-ms", "200") == ""
        assert cli("consume", name, "--from-beginning", "--timeout", "0.2") == ""

    def test_mistakes(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        cli("consume", f"{name}-not", code=1)
        assert "there is no such topic" in cli.err
        cli("consume", name, "-p", "5", code=1)
        assert f"`tidelog topic describe {name}` shows what there is" in cli.err
        cli("consume", name, "-o", "soon", code=2)
        assert "expected earliest, latest, N, -N or @TIME" in cli.err
        cli("consume", name, "-p", "a", code=2)
        assert "expected numbers with commas" in cli.err
        cli("produce", name, "x", "-p", "5", code=1)
        assert "the topic has 1 partitions" in cli.err
        cli("produce", name, "-f", "/no/such/file", code=1)
        assert "/no/such/file cannot be read: No such file or directory" in cli.err

    def test_ctrl_c_leaves_the_group_and_keeps_its_place(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        cli("produce", name, "one", "two", "-q")
        command = heeding_ctrl_c("consume", name, "-g", name, "--from-beginning", "-b", cli.bootstrap)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert [running.stdout.readline(), running.stdout.readline()] == ["one\n", "two\n"]
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=30)
        assert (running.returncode, err) == (130, "Processed a total of 2 messages\n")
        described = cli.json("group", "describe", name)[0]
        assert (described["state"], described["partitions"][0]["current_offset"]) == ("Empty", 2)

    def test_a_reader_that_has_enough(self, cli: Cli, name: str, tmp_path: Path) -> None:
        cli("topic", "create", name)
        lines = tmp_path / "lines"
        lines.write_text("line\n" * 20_000)
        cli("produce", name, "-f", str(lines), "-q")
        command = [sys.executable, "-m", "tidelog", "consume", name, "--from-beginning", "-q", "-b", cli.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "line\n"
            running.stdout.close()
            assert running.stderr is not None
            assert running.stderr.read() == ""
        assert running.returncode == 0


def heartbeat(
    wire: Wire, group: str, member: str, epoch: int, topics: list[str] | None = None
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
    if topics is not None:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = topics
        request.topic_partitions = []
    return wire.call(request, 1, ConsumerGroupHeartbeatResponse)


def joined(wire: Wire, group: str, member: str) -> ConsumerGroupHeartbeatResponse:
    """The answer to the first heartbeat that the coordinator was ready for."""
    while True:
        wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4, FindCoordinatorResponse)
        answer = heartbeat(wire, group, member, 0, [group])
        if answer.error_code == ErrorCode.NONE:
            return answer
        assert answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def by_id(member: dict[str, Any]) -> str:
    return str(member["consumer_id"])


class TestGroup:
    @pytest.fixture
    def group(self, cli: Cli, name: str) -> str:
        """A group that has read two of five records of one partition and none of the other's three."""
        cli("topic", "create", name, "-p", "2")
        for hour in range(1, 6):
            cli("produce", name, f"{hour}", "-p", "0", "--timestamp", str(hour * HOUR_MS), "-q")
        cli("produce", name, "a", "b", "c", "-p", "1", "-q")
        cli("group", "reset", name, "--topic", name, "--to-offset", "2", "--execute")
        cli("group", "reset", name, "--topic", f"{name}:1", "--to-earliest", "--execute")
        return name

    def test_list_and_describe(self, cli: Cli, group: str) -> None:
        assert group in cli("group", "list").split()
        assert [group, "Classic"] in [row[:2] for row in cli.rows("group", "list", "--state", "Empty")]
        assert group not in cli("group", "list", "--state", "Stable").split()
        rows = cli.rows("group", "describe", group)
        assert f"Consumer group '{group}' has no active members." in cli.err
        columns = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID LAG-SECONDS"
        assert " ".join(rows[0]) == columns
        assert rows[1][:9] == [group, group, "0", "2", "5", "3", "-", "-", "-"]
        assert rows[2][:9] == [group, group, "1", "0", "3", "3", "-", "-", "-"]
        cli("group", "describe", f"{group}-not", code=1)
        assert "GROUP_ID_NOT_FOUND" in cli.err
        state = cli.json("group", "describe", group, "--state")[0]
        assert (state["state"], state["members"], state["coordinator"]) == ("Empty", 0, 1)

    def test_a_group_of_the_consumer_protocol(self, cli: Cli, name: str) -> None:
        """One member has all and is told to give half of it to another: current and target are not the same then."""
        cli("topic", "create", name, "-p", "2")
        with Wire(cli.bootstrap) as wire:
            first = joined(wire, name, "first")
            assert first.assignment is not None
            joined(wire, name, "second")
            told = first
            while (told := heartbeat(wire, name, "first", told.member_epoch)).assignment is None:
                pass  # Apache makes targets once a second
            assert [name, "Consumer", "consumer"] in [row[:3] for row in cli.rows("group", "list", "-l")]
            assert cli.rows("group", "describe", name, "--state")[0][-3:] == ["TYPE", "EPOCH", "TARGET-EPOCH"]
            state = cli.json("group", "describe", name, "--state")[0]
            assert (state["type"], state["state"], state["assignor"]) == ("Consumer", "Reconciling", "uniform")
            assert state["epoch"] == state["target_epoch"] > first.member_epoch
            one, two = sorted(cli.json("group", "describe", name, "--members")[0]["members"], key=by_id)
            assert (one["consumer_id"], one["protocol"], one["epoch"]) == ("first", "consumer", told.member_epoch)
            assert (len(one["target_assignment"]), len(two["assignment"]), len(two["target_assignment"])) == (1, 0, 1)
            rows = cli.rows("group", "describe", name, "--members", "--verbose")
            assert rows[0][4:] == ["#PARTITIONS", "EPOCH", "PROTOCOL", "ASSIGNMENT", "TARGET-ASSIGNMENT"]
            for member in ("first", "second"):
                heartbeat(wire, name, member, -1)
        assert [name, "Consumer", "consumer", "Empty"] in cli.rows("group", "list", "-l")

    def test_lag_in_seconds_is_the_age_of_the_first_uncommitted_record(self, cli: Cli, group: str) -> None:
        old, new = cli.json("group", "describe", group)[0]["partitions"]
        # Offset 2 of partition 0 is from 03:00 on 1 January 1970.
        assert old["lag_seconds"] > 50 * 365 * 86_400
        assert 0 <= new["lag_seconds"] < 3_600
        cli("group", "reset", group, "--all-topics", "--to-latest", "--execute")
        caught_up = cli.json("group", "describe", group)[0]["partitions"]
        assert [(one["lag"], one["lag_seconds"]) for one in caught_up] == [(0, 0), (0, 0)]

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--to-earliest"], [0, 0]),
            (["--to-latest"], [5, 3]),
            (["--to-current"], [2, 0]),
            (["--to-offset", "1"], [1, 1]),
            (["--to-offset", "99"], [5, 3]),
            (["--shift-by", "2"], [4, 2]),
            (["--shift-by", "-1"], [1, 0]),
            (["--to-datetime", "1970-01-01T04:00:00.000"], [3, 0]),
            (["--to-datetime", "1970-01-01T05:30:00+02:00"], [3, 0]),
            (["--by-duration", "PT1H"], [5, 0]),
            (["--by-duration", "P99999D"], [0, 0]),
        ],
    )
    def test_every_form_of_reset(self, cli: Cli, group: str, options: list[str], expected: list[int]) -> None:
        plan = cli.json("group", "reset", group, "--all-topics", *options)
        assert [(one["partition"], one["new_offset"], one["current_offset"]) for one in plan] == [
            (0, expected[0], 2),
            (1, expected[1], 0),
        ]
        before = [one["current_offset"] for one in cli.json("group", "describe", group)[0]["partitions"]]
        assert before == [2, 0], "a dry run changed something"
        rows = cli.rows("group", "reset", group, "--topic", group, *options, "--execute")
        assert rows[0][:4] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
        after = [one["current_offset"] for one in cli.json("group", "describe", group)[0]["partitions"]]
        assert after == expected

    def test_a_plan_is_written_and_read_as_csv(self, cli: Cli, group: str, tmp_path: Path) -> None:
        plan = cli("group", "reset", group, "--all-topics", "--to-latest", "--export")
        assert plan == f"{group},0,5\n{group},1,3\n"
        path = tmp_path / "plan.csv"
        path.write_text(plan.replace(",5", ",4"))
        cli("group", "reset", group, "--from-file", str(path), "--execute")
        after = [one["current_offset"] for one in cli.json("group", "describe", group)[0]["partitions"]]
        assert after == [4, 3]

    def test_only_some_partitions(self, cli: Cli, group: str) -> None:
        cli("group", "reset", group, "--topic", f"{group}:0", "--to-latest", "--execute")
        after = [one["current_offset"] for one in cli.json("group", "describe", group)[0]["partitions"]]
        assert after == [5, 0]

    def test_a_group_at_work_is_left_alone(self, cli: Cli, group: str) -> None:
        command = heeding_ctrl_c("consume", group, "-g", group, "-q", "-b", cli.bootstrap)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for _ in range(6):
                running.stdout.readline()
            cli("group", "reset", group, "--all-topics", "--to-earliest", "--execute", code=1)
            assert f"group {group} has 1 active member (state Stable); stop all before the reset" in cli.err
            cli("group", "delete", group, code=1)
            assert "NON_EMPTY_GROUP" in cli.err
            members = cli.rows("group", "describe", group, "--members", "--verbose")
            assert members[1][-2:] == ["2", f"{group}:0,1"]
            rows = cli.rows("group", "describe", group)
            assert rows[1][7:9] == ["/127.0.0.1", "tidelog"]
            running.send_signal(signal.SIGINT)
        cli("group", "reset", group, "--all-topics", "--to-earliest", "--execute")

    def test_delete_offsets_and_groups(self, cli: Cli, group: str) -> None:
        deleted = cli("group", "delete", group, "--topic", f"{group}:1")
        assert deleted == f"deleted the offset of {group}-1 in group {group}\n"
        assert [one["partition"] for one in cli.json("group", "describe", group)[0]["partitions"]] == [0]
        cli("group", "delete", group, "--topic", "other", code=1)
        assert "has committed nothing for other" in cli.err
        assert cli("group", "delete", group) == f"deleted group {group}\n"
        assert group not in cli("group", "list").split()
        cli("group", "delete", group, code=1)
        assert "GROUP_ID_NOT_FOUND" in cli.err

    def test_a_group_that_does_not_exist_is_made(self, cli: Cli, name: str) -> None:
        cli("topic", "create", name)
        cli("group", "reset", name, "--topic", name, "--to-earliest")
        assert f"there is no group {name}; --execute would make it" in cli.err
        cli("group", "reset", name, "--topic", name, "--to-earliest", "--execute")
        assert name in cli("group", "list").split()
