"""What Spark prints is kept in a file, and what we print is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.spark.pipeline import session
from tidelog.spark.pipeline.session import printing_to


def test_what_is_started_meanwhile_prints_to_the_file_as_long_as_it_lives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "work" / "spark.log"
    script = "import sys; sys.stdin.read(); print('theirs'); print('also', file=sys.stderr)"
    with printing_to(log):
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    os.write(1, b"ours\n")
    os.write(2, b"ours too\n")
    child.communicate(timeout=120)
    assert sorted(log.read_text().splitlines()) == ["also", "theirs"]
    assert capfd.readouterr() == ("ours\n", "ours too\n")


def test_a_large_log_makes_room_and_a_failure_gives_the_terminal_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "LOG_MAX", 3)
    log = tmp_path / "spark.log"
    log.write_text("large")
    with pytest.raises(ZeroDivisionError), printing_to(log):
        os.write(2, b"new")
        raise ZeroDivisionError
    os.write(2, b"ours")
    assert ((tmp_path / "spark.log.1").read_text(), log.read_text()) == ("large", "new")
    assert capfd.readouterr().err == "ours"
