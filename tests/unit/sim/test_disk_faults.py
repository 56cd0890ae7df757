"""Faults of the simulated disk by name: no room at one operation, a directory that is broken, reads that fail."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.sim.disk import DiskFaults, SimDisk
from tidelog.sim.loop import run


def new_disk(*directories: str) -> SimDisk:
    disk = SimDisk(Random(0))
    for directory in directories or ("d",):
        disk.make_dirs(directory)
    disk.sync_dir("")
    return disk


def next_is_full(disk: SimDisk, count: int = 1) -> None:
    disk.faults.full_at = range(disk.operations + 1, disk.operations + 1 + count)


def test_no_room_makes_one_append_short_and_the_next_whole() -> None:
    disk = new_disk()
    file = disk.open("d/f", create=True)
    lengths = set()
    for _ in range(50):
        file.truncate(0)
        next_is_full(disk)
        written = file.append((b"abc",))
        assert file.read(0, 10) == b"abc"[:written]
        lengths.add(written)
        file.truncate(0)
        assert file.append((b"abc",)) == 3
    assert lengths == {0, 1, 2}


def test_no_room_refuses_new_names_and_leaves_none_behind() -> None:
    disk = new_disk()
    disk.replace_file("d/old", b"old")
    next_is_full(disk)
    with pytest.raises(DiskFullError, match=r"^cannot create d/f: No space left on device$"):
        disk.open("d/f", create=True)
    next_is_full(disk)
    with pytest.raises(DiskFullError):
        disk.make_dirs("d/e")
    for operation in (1, 2, 4):  # the third is a sync
        disk.faults.full_at = range(disk.operations + operation, disk.operations + operation + 1)
        with pytest.raises(DiskFullError):
            disk.replace_file("d/old", b"new")
    assert (disk.list_dir("d"), disk.read_file("d/old")) == (["old"], b"old")


def test_what_gives_room_back_never_lacks_it() -> None:
    disk = new_disk()
    file = disk.open("d/f", create=True)
    file.append((b"abc",))
    next_is_full(disk, 10)
    file.truncate(1)
    disk.remove("d/f")
    assert disk.list_dir("d") == []


def test_a_broken_directory_fails_alone() -> None:
    async def main() -> None:
        disk = new_disk("a", "ab")
        for directory in ("a", "ab"):
            disk.open(f"{directory}/f", create=True).append((b"x",))
        disk.faults.broken_below = ("a",)
        file = disk.open("a/f")
        for action in (
            lambda: file.append((b"y",)),
            lambda: file.read(0, 1),
            lambda: disk.read_file("a/f"),
            lambda: disk.open("a/g", create=True),
            lambda: disk.sync_dir("a"),
            lambda: disk.rename("ab/f", "a/h"),
        ):
            with pytest.raises(DiskError, match="Input/output error"):
                action()
        with pytest.raises(DiskError, match="Input/output error"):
            await disk.sync([file])
        other = disk.open("ab/f")
        other.append((b"y",))
        await disk.sync([other], ["ab"])
        assert (other.read(0, 10), disk.read_file("ab/f")) == (b"xy", b"xy")

    run(main())


def test_reads_fail_as_often_as_asked() -> None:
    disk = new_disk()
    file = disk.open("d/f", create=True)
    file.append((b"x",))
    disk.faults.read_error = 0.5
    failed = 0
    for _ in range(100):
        try:
            file.read(0, 1)
        except DiskError:
            failed += 1
    assert 25 < failed < 75


def test_a_crash_heals_what_was_asked_for_by_number_only() -> None:
    disk = new_disk()
    disk.faults = DiskFaults(fail_at=3, full_at=range(3, 9), broken_below=("d",), read_error=0.1)
    assert disk.crash(keep_page_cache=True).faults == DiskFaults(broken_below=("d",), read_error=0.1)
