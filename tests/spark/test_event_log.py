"""Each whole line of Spark's event logs is read once, however often and when one looks."""

from __future__ import annotations

from pathlib import Path

from tests.spark.faults.event_log import EventLogs


def append(file: Path, text: str) -> None:
    with file.open("a") as log:
        log.write(text)


def test_a_look_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    logs, file = EventLogs(tmp_path), tmp_path / "app-1.inprogress"
    assert list(logs.fresh()) == []
    append(file, "one\ntwo\n")
    assert list(logs.fresh()) == [b"one\n", b"two\n"]
    assert list(logs.fresh()) == []
    # What was read is not looked at again: nothing of it needs to be there.
    file.write_text("X" * len("one\ntwo\n") + "three\n")
    assert list(logs.fresh()) == [b"three\n"]


def test_a_torn_last_line_is_given_once_it_is_whole(tmp_path: Path) -> None:
    logs, file = EventLogs(tmp_path), tmp_path / "app-1.inprogress"
    append(file, "one\ntw")
    assert list(logs.fresh()) == [b"one\n"]
    append(file, "o and")
    assert list(logs.fresh()) == []
    append(file, " more\nthr")
    assert list(logs.fresh()) == [b"two and more\n"]
    append(file, "\u00e9e\n")  # torn or not, bytes are bytes
    assert list(logs.fresh()) == ["thr\u00e9e\n".encode()]


def test_a_new_drivers_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    logs = EventLogs(tmp_path)
    append(tmp_path / "app-2.inprogress", "one\nhalf of what a dead dri")
    assert list(logs.fresh()) == [b"one\n"]
    append(tmp_path / "app-1.inprogress", "two\n")
    append(tmp_path / "app-2.inprogress", "ver wrote\n")
    assert list(logs.fresh()) == [b"two\n", b"half of what a dead driver wrote\n"]


def test_a_log_that_loses_its_suffix_is_the_same_log(tmp_path: Path) -> None:
    logs, file = EventLogs(tmp_path), tmp_path / "app-1.inprogress"
    append(file, "one\ntw")
    assert list(logs.fresh()) == [b"one\n"]
    append(file, "o\n")
    file.rename(tmp_path / "app-1")
    assert list(logs.fresh()) == [b"two\n"]
    assert list(logs.fresh()) == []


def test_a_log_that_is_renamed_during_a_look_is_found_by_the_next(tmp_path: Path) -> None:
    logs, file = EventLogs(tmp_path), tmp_path / "app-2.inprogress"
    append(tmp_path / "app-1.inprogress", "one\n")
    append(file, "two\n")
    look = logs.fresh()
    assert next(look) == b"one\n"
    file.rename(tmp_path / "app-2")
    assert list(look) == []
    assert list(logs.fresh()) == [b"two\n"]


def test_rolled_files_of_a_log_follow_each_other(tmp_path: Path) -> None:
    logs, folder = EventLogs(tmp_path), tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    append(folder / "appstatus_app-1.inprogress", "")
    append(folder / ".appstatus_app-1.inprogress.crc", "no log\n")
    append(folder / "events_1_app-1", "one\n")
    assert list(logs.fresh()) == [b"one\n"]
    append(folder / "events_1_app-1", "two\n")
    append(folder / "events_2_app-1", "three\n")
    assert list(logs.fresh()) == [b"two\n", b"three\n"]
    (folder / "appstatus_app-1.inprogress").rename(folder / "appstatus_app-1")
    assert list(logs.fresh()) == []
