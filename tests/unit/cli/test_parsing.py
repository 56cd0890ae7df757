"""Command lines and what people write in them, without a broker."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog.cli.common import CommandError, UsageError
from tidelog.cli.consume import make_formatter
from tidelog.cli.formats import InputRecord, compile_format, from_json_line, json_line, to_json, unescape
from tidelog.cli.group_reset import read_csv
from tidelog.cli.main import COMMANDS, main, parse
from tidelog.cli.partitions import parse_spec
from tidelog.cli.times import format_time, parse_duration, parse_time
from tidelog.client.metadata import TopicPartition
from tidelog.client.records import ConsumedRecord
from tidelog.client.resetting import Move, ShiftBy, ToCurrent, ToEarliest, ToGiven, ToLatest, ToOffset, ToTime, move
from tools.ports import free_port

RECORD = ConsumedRecord("orders", 2, 17, 1_700_000_000_000, False, b"k", b"v", (("h", b"1"), ("n", None)), 0)
EMPTY = ConsumedRecord("orders", 0, 0, 5, True, None, None, (), 0)


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the message of a command line that cannot be done."""
    try:
        code = main(arguments)
    except SystemExit as exit:
        code = int(exit.code or 0)
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    return code, output.err


class TestCommandLine:
    def test_help_names_every_command_and_imports_none(self) -> None:
        script = (
            "import sys; from tidelog.cli.main import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: pass\n"
            "heavy = [name for name in sys.modules if name in ('asyncio', 'msgspec', 'cramjam', 'uvloop')]\n"
            "print(heavy, [name for name in sys.modules if name.startswith('tidelog.client')])"
        )
        output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        assert output.endswith("[] []\n")
        assert all(f"    {command} " in output for command in COMMANDS)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["tpoic", "list"], "there is no command 'tpoic', did you mean 'topic'"),
            ([], "required: COMMAND"),
            (["topic"], "required: VERB"),
            (["topic", "create"], "name at least one topic"),
            (["topic", "create", "t", "--partitons", "3"], "no option --partitons, did you mean '--partitions'"),
            (["topic", "create", "t", "-p", "x"], "'x' is not a whole number"),
            (["topic", "create", "t", "-c", "retention.ms"], "'retention.ms' is not NAME=VALUE"),
            (["topic", "create", "t", "--replica-assignment", "1:x"], "expected broker ids such as 1:2,2:3"),
            (["topic", "alter", "t"], "nothing to change"),
            (["topic", "list", "a", "b"], "what is 'b'? it takes no more names"),
            (["config", "set", "topic", "t"], "nothing to set"),
            (["config", "get", "broker", "one"], "'one' is not the id of a broker"),
            (["produce"], "name the topic"),
            (["produce", "t", "--tombstone"], "--tombstone needs --key"),
            (["consume"], "name at least one topic"),
            (["consume", "t", "--from-beginning", "-o", "5"], "only one of --from-beginning, --offset and --from-time"),
            (["consume", "t", "-g", "g", "-o", "5"], "or move it with `tidelog group reset`"),
            (["consume", "t", "--json", "-f", "%s"], "only one of --json and --format"),
            (["consume", "t", "-f", "%x"], "%x in --format is unknown"),
            (["consume", "t", "--print", "size"], "--print size: known are timestamp, partition"),
            (["consume", "t", "--property", "print.kye=true"], "'print.kye' is not a property"),
            (["consume", "t", "--property", "print.key=yes"], "expected true or false"),
            (["group", "reset", "g", "--to-earliest"], "say which topics"),
            (["group", "reset", "g", "--all-topics", "--topic", "t", "--to-earliest"], "say which topics"),
            (["group", "reset", "g", "--all-topics"], "one of the arguments --to-earliest"),
            (["group", "reset", "g", "--all-topics", "--to-latest", "--to-offset", "3"], "not allowed with"),
            (["dump"], "required: FILE"),
            (["dump", "x.log", "-n", "0"], "expected 1 or more"),
            (["verify"], "name at least one data directory"),
            (["verify", "no/such"], "there is no directory no/such"),
            (["verify", ".", "--depe"], "there is no option --depe, did you mean '--deep'"),
        ],
    )
    def test_a_command_line_that_cannot_be_understood_is_a_sentence_and_2(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        code, text = failed(capsys, *arguments)
        assert message in text
        assert code == 2

    def test_names_may_stand_anywhere(self) -> None:
        args = parse(["topic", "create", "a", "-p", "3", "b", "--config", "x=y", "c", "--topic", "d"])
        assert (args.names, args.more_names, args.partitions) == (["a", "b", "c"], ["d"], 3)

    def test_the_broker_comes_from_the_option_or_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert parse(["topic", "list"]).bootstrap == "127.0.0.1:9092"
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", "kafka:1")
        assert parse(["topic", "list"]).bootstrap == "kafka:1"
        assert parse(["topic", "list", "--bootstrap-server", "other:2"]).bootstrap == "other:2"
        assert parse(["topic", "list", "--broker-list", "old:3"]).bootstrap == "old:3"

    @pytest.mark.parametrize("command", [["topic", "list"], ["produce", "t", "v"], ["consume", "t"], ["group", "list"]])
    def test_no_broker_says_how_to_start_one(self, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
        address = f"127.0.0.1:{free_port()}"
        code, text = failed(capsys, *command, "-b", address)
        assert code == 1
        assert text == (
            f"tidelog: no broker can be reached ({address}: nobody listens there); start a node with `tidelog serve`, "
            "or name a broker with --bootstrap-server or TIDELOG_BOOTSTRAP\n"
        )

    def test_an_address_that_is_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, text = failed(capsys, "topic", "list", "-b", "localhost:kafka")
        assert (code, text) == (
            1,
            "tidelog: 'localhost:kafka' is not an address; expected HOST:PORT, such as 127.0.0.1:9092\n",
        )

    def test_a_bug_is_called_a_bug(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidelog.cli.verbs.ask", lambda *_: 1 / 0)
        code, text = failed(capsys, "topic", "list")
        assert code == 1
        assert "unexpected ZeroDivisionError" in text
        assert "TIDELOG_DEBUG=1 shows where" in text


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1700000000000", 1_700_000_000_000),
            ("2023-11-14T22:13:20", 1_700_000_000_000),
            ("2023-11-14T22:13:20.123", 1_700_000_000_123),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
            ("2023-11-14", 1_699_920_000_000),
        ],
    )
    def test_times(self, text: str, expected: int) -> None:
        assert parse_time(text) == expected

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("P1D", 86_400),
            ("PT1H30M", 5_400),
            ("P1DT2H3M4.5S", 93_784.5),
            ("P1W", 604_800),
            ("90s", 90),
            ("1d2h", 93_600),
            ("1.5s", 1.5),
        ],
    )
    def test_durations(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == seconds * 1000

    @pytest.mark.parametrize("text", ["", "P", "PT", "1", "5 minutes", "h", "-PT1H"])
    def test_no_duration(self, text: str) -> None:
        with pytest.raises(UsageError, match="is not a duration; expected PnDTnHnMnS such as PT1H30M, or 1h30m"):
            parse_duration(text)

    @pytest.mark.parametrize("text", ["", "now", "14.11.2023", "2023-13-01"])
    def test_no_time(self, text: str) -> None:
        with pytest.raises(UsageError, match="is not a time"):
            parse_time(text)

    def test_times_are_shown_in_utc(self) -> None:
        assert format_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


class TestFormats:
    @pytest.mark.parametrize(
        ("options", "record", "expected"),
        [
            ([], RECORD, b"v\n"),
            ([], EMPTY, b"null\n"),
            (["--print-key"], RECORD, b"k\tv\n"),
            (
                ["--print", "timestamp,partition,offset,headers,key,value"],
                RECORD,
                b"CreateTime:1700000000000\tPartition:2\tOffset:17\th:1,n:null\tk\tv\n",
            ),
            (["--print", "timestamp,headers"], EMPTY, b"LogAppendTime:5\tNO_HEADERS\n"),
            (
                ["--property", "print.key=true", "--property", "key.separator= -> ", "--property", "null.literal=~"],
                EMPTY,
                b"~ -> ~\n",
            ),
            (
                ["--formatter-property", "print.value=false", "--formatter-property", "print.offset=true"],
                RECORD,
                b"Offset:17\n",
            ),
            (
                ["-f", r"%t[%p]@%o %T %k(%K)=%s(%S) %h 100%%\n"],
                RECORD,
                b"orders[2]@17 1700000000000 k(1)=v(1) h=1,n=NULL 100%\n",
            ),
            (["-f", r"%k%s\0"], EMPTY, b"\0"),
        ],
    )
    def test_what_is_printed(self, options: list[str], record: ConsumedRecord, expected: bytes) -> None:
        assert make_formatter(parse(["consume", "t", *options]))(record) == expected

    @pytest.mark.parametrize("text", ["%", "100%", "%%%", "%z"])
    def test_a_format_that_ends_or_errs(self, text: str) -> None:
        with pytest.raises(UsageError):
            compile_format(text)

    def test_escapes(self) -> None:
        assert unescape(r"a\tb\nc\\d\x00\xffé\q") == b"a\tb\nc\\d\x00" + b"\xff" + "é\\q".encode()

    @pytest.mark.parametrize(
        "record",
        [
            RECORD,
            EMPTY,
            RECORD._replace(value=b"\xff\x00", key="schlüssel".encode(), headers=(("b", b"\xfe"),)),
            RECORD._replace(value=b'{"a":1}'),
        ],
    )
    def test_json_comes_back_as_it_was(self, record: ConsumedRecord) -> None:
        line = json_line(record)
        assert line.count(b"\n") == 1
        assert from_json_line(line, 1) == InputRecord(
            record.key, record.value, record.headers, record.partition, record.timestamp
        )

    def test_json_of_others(self) -> None:
        assert from_json_line(b'{"value": {"a": 1}, "headers": {"h": "x"}}', 1) == InputRecord(
            None, b'{"a":1}', (("h", b"x"),)
        )
        assert from_json_line(b'{"payload": "kcat"}', 1).value == b"kcat"
        assert to_json(None) is None

    @pytest.mark.parametrize(
        "line",
        [b"{", b"[]", b"{}", b'{"value":1,"partition":"0"}', b'{"value":{"base64":"?"}}', b'{"value":1,"headers":[1]}'],
    )
    def test_json_that_is_no_record(self, line: bytes) -> None:
        with pytest.raises(CommandError, match="line 7 is not a record in JSON"):
            from_json_line(line, 7)


def test_partitions_of_a_topic() -> None:
    assert parse_spec("t") == ("t", None)
    assert parse_spec("t:0,12") == ("t", [0, 12])
    for text in ("t:", "t:a", "t:1,,2", "t:-1"):
        with pytest.raises(UsageError, match="partitions are numbers with commas, such as t:0,2"):
            parse_spec(text)


class TestResets:
    AT = TopicPartition("t", 0)

    @pytest.mark.parametrize(
        ("target", "current", "expected"),
        [
            (ToEarliest(), 7, 5),
            (ToLatest(), 7, 20),
            (ToCurrent(), 7, 7),
            (ToOffset(9), 7, 9),
            (ShiftBy(3), 7, 10),
            (ShiftBy(-2), 7, 5),
            (ToTime(1), 7, 12),
            (ToGiven({AT: 8}), None, 8),
        ],
    )
    def test_where_a_group_goes(self, target: object, current: int | None, expected: int) -> None:
        moved = move(target, self.AT, current, 5, 20, by_time=12)  # type: ignore[arg-type]
        assert moved == Move(self.AT, current, expected)

    @pytest.mark.parametrize(
        ("target", "current", "expected", "warning"),
        [
            (ToOffset(4), 7, 5, "4 is before the first record"),
            (ToOffset(21), 7, 20, "21 is behind the last record"),
            (ShiftBy(-100), 7, 5, "-93 is before the first record"),
            (ShiftBy(1), None, 20, "nothing is committed that could be shifted"),
            (ToCurrent(), None, 20, "nothing is committed"),
            (ToCurrent(), 2, 5, "2 is before the first record"),
            (ToGiven({AT: 99}), 7, 20, "99 is behind the last record"),
        ],
    )
    def test_what_the_log_does_not_hold_is_mended_and_said(
        self, target: object, current: int | None, expected: int, warning: str
    ) -> None:
        moved = move(target, self.AT, current, 5, 20)  # type: ignore[arg-type]
        assert moved.new == expected
        assert warning in (moved.warning or "")

    def test_no_record_of_that_time_is_the_end(self) -> None:
        assert move(ToTime(1), self.AT, 7, 5, 20, by_time=-1).new == 20

    def test_files_with_and_without_groups(self) -> None:
        rows = [["t", "0", "5"], [], ["g", "t", " 1", "6"]]
        assert read_csv(rows, "f") == {None: {TopicPartition("t", 0): 5}, "g": {TopicPartition("t", 1): 6}}

    @pytest.mark.parametrize("row", [["t", "0"], ["t", "x", "5"], ["a", "g", "t", "0", "5"], ["t", "0", ""]])
    def test_a_line_that_is_wrong_is_named(self, row: list[str]) -> None:
        with pytest.raises(CommandError, match=r"plan.csv, line 2: .* is not \[group,\]topic,partition,offset"):
            read_csv([["t", "0", "5"], row], "plan.csv")
