"""The lock on a data directory, by the system and by a file that names its owner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.kernel.errors import DirectoryLockedError, DiskError
from tidelog.runtime.dirlock import lock_file

# Takes the lock, says so, and holds it until its input ends; a refusal is its exit text.
HOLDER = """
import sys
from tidelog.runtime.dirlock import lock_file
if {hidden}:
    sys.modules["fcntl"] = None
    sys.modules["msvcrt"] = None
lock_file(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def holder(path: str, *, hidden: bool) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(hidden=hidden), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / ".lock")


@pytest.fixture
def without_locking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system with neither flock nor Windows' locking."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)


def test_a_lock_of_another_process_is_refused_until_that_is_killed(path: str) -> None:
    other = holder(path, hidden=False)
    try:
        with pytest.raises(DirectoryLockedError, match=r"stop that one or choose another directory$"):
            lock_file(path)
    finally:
        end(other)
    lock_file(path).release()


def test_the_lock_stays_when_another_descriptor_of_its_file_is_closed(path: str) -> None:
    """A POSIX record lock would fall here."""
    lock = lock_file(path)
    Path(path).read_bytes()
    with pytest.raises(DirectoryLockedError):
        lock_file(path)
    lock.release()


def test_a_refused_lock_leaves_no_descriptor_behind(path: str) -> None:
    lock = lock_file(path)
    descriptors = os.dup(0)
    os.close(descriptors)
    for _ in range(5):
        with pytest.raises(DirectoryLockedError):
            lock_file(path)
    after = os.dup(0)
    os.close(after)
    assert after == descriptors, "the lowest free number is the same"
    lock.release()


@pytest.mark.usefixtures("without_locking")
class TestOwnerFile:
    def test_it_names_this_process_while_held(self, path: str) -> None:
        lock = lock_file(path)
        assert int(Path(path + ".owner").read_text()) == os.getpid()
        with pytest.raises(DirectoryLockedError):
            lock_file(path)
        lock.release()
        lock.release()
        assert not os.path.exists(path + ".owner")
        lock_file(path).release()

    def test_a_living_owner_is_respected_and_a_dead_one_is_followed(self, path: str) -> None:
        other = holder(path, hidden=True)
        try:
            assert int(Path(path + ".owner").read_text()) == other.pid
            with pytest.raises(DirectoryLockedError):
                lock_file(path)
        finally:
            end(other)
        lock = lock_file(path)
        assert int(Path(path + ".owner").read_text()) == os.getpid()
        lock.release()

    def test_a_container_that_restarts_with_the_same_number_does_not_lock_itself_out(self, path: str) -> None:
        Path(path + ".owner").write_text(str(os.getpid()))
        lock_file(path).release()

    def test_an_owner_that_may_not_be_asked_lives(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another user's process: the system says EPERM, so there is one."""

        def refuse(pid: int, signal: int) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "kill", refuse)
        Path(path + ".owner").write_text("12345")
        with pytest.raises(DirectoryLockedError):
            lock_file(path)

    def test_an_owner_that_has_not_written_its_number_yet_is_respected(self, path: str) -> None:
        Path(path + ".owner").touch()
        with pytest.raises(DirectoryLockedError):
            lock_file(path)


def test_no_directory_is_a_sentence(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / ".lock")
    with pytest.raises(DiskError, match=f"^cannot lock {path}: No such file or directory$"):
        lock_file(path)


@pytest.mark.usefixtures("without_locking")
def test_no_directory_is_a_sentence_without_locking_too(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / ".lock")
    with pytest.raises(DiskError, match=f"^cannot lock {path}: No such file or directory$"):
        lock_file(path)
