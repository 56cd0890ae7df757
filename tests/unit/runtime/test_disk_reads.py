"""Reading what is in memory, and what is not: in a thread, with a descriptor that nobody closes meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from tests.unit.runtime.test_disk import MakeDisk, create, make_disk, needs_proc, open_names
from tidelog.kernel.errors import DiskError
from tidelog.runtime import file as file_module
from tidelog.runtime.disk import OsDisk, OsFile

__all__ = ["make_disk"]

CONTENT = os.urandom(300_000)
TRIES = 200


@pytest.fixture
def disk(make_disk: MakeDisk) -> OsDisk:
    return make_disk()


@pytest.fixture
def file(disk: OsDisk, tmp_path: Path) -> OsFile:
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append([CONTENT])
    file.sync()
    return file


def is_in_memory(file: OsFile, position: int) -> bool:
    """As the system itself says, where it can."""
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("this system cannot tell what is in memory")
    try:
        return os.preadv(file.fd, [bytearray(1)], position, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system cannot tell what is in memory")


def make_cold(file: OsFile) -> None:
    """A disk may be quick enough to have brought a page before the system looks whether it is there; one that always is
    has its files in memory."""
    for _ in range(TRIES):
        is_cold = not is_in_memory(file, 100_000)
        os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if is_cold:
            return
    pytest.skip("this file system keeps its files in memory")


def is_refused(file: OsFile) -> bool:
    make_cold(file)
    return file.read_now(100_000, 1000) is None


def test_what_is_in_memory_comes_at_once(file: OsFile) -> None:
    for position, length in ((0, 10), (5, 100_000), (299_990, 10), (299_990, 100), (300_000, 10), (0, 300_001)):
        assert file.read_now(position, length) == CONTENT[position : position + length]


def test_what_is_not_in_memory_is_said_to_be_so_and_can_be_read_later(disk: OsDisk, file: OsFile) -> None:
    assert any(is_refused(file) for _ in range(TRIES))

    async def read() -> bytes:
        return await disk.read_later(file, 100_000, 1000)

    make_cold(file)
    assert asyncio.run(read()) == CONTENT[100_000:101_000]
    assert file.read_now(100_000, 1000) == CONTENT[100_000:101_000]


def test_a_part_in_memory_is_not_the_whole(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_in_memory(file, 0)
    preadv = os.preadv
    in_memory = 8192

    def partly(fd: int, buffers: list[memoryview], position: int, flags: int) -> int:
        if position >= in_memory:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return preadv(fd, [buffers[0][: in_memory - position]], position, flags)

    monkeypatch.setattr(os, "preadv", partly)
    assert file.read_now(0, in_memory) == CONTENT[:in_memory]
    assert file.read_now(0, in_memory + 1) is None
    assert file.read_now(100_000, 1) is None


def test_a_short_count_is_asked_on_until_the_end_of_the_file(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, *rest: preadv(fd, [buffers[0][:70_000]], *rest))
    assert file.read_now(10, 200_000) == CONTENT[10:200_010]
    assert file.read_now(10, 400_000) == CONTENT[10:]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_cannot_tell_is_read_as_ever(
    file: OsFile, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    calls: list[int] = []

    def refuse(*_: object) -> int:
        calls.append(1)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", refuse)
    for _ in range(3):
        assert file.read_now(7, 100) == CONTENT[7:107]
    assert len(calls) == 1, "it is asked once for each file"


def test_a_system_without_the_flag_reads_as_ever(disk: OsDisk, file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "_NOWAIT", 0)
    monkeypatch.delattr(os, "preadv")
    assert disk.open(file.path).read_now(7, 100) == CONTENT[7:107]


@pytest.mark.parametrize("way", ["now", "later"])
def test_a_read_error_is_a_disk_error(disk: OsDisk, file: OsFile, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    disk.pread = fail

    async def read() -> None:
        if way == "now":
            file.read_now(0, 10)
        else:
            await disk.read_later(file, 0, 10)

    with pytest.raises(DiskError, match="Input/output"):
        asyncio.run(read())


class Gate:
    """Holds the readers' threads until it is opened."""

    def __init__(self, disk: OsDisk) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        pread = disk.pread

        def wait(fd: int, length: int, position: int) -> bytes:
            self.entered.set()
            assert self.opened.wait(20)
            return pread(fd, length, position)

        disk.pread = wait


@needs_proc
def test_a_file_that_is_read_keeps_its_descriptor_whatever_else_is_opened_or_closed(
    make_disk: MakeDisk, tmp_path: Path
) -> None:
    disk = make_disk(open_files_max=2)
    file, *others = create(disk, tmp_path, 6)
    file.append([CONTENT])
    disk.sync_now([file])
    gate = Gate(disk)

    async def read() -> None:
        reading = disk.read_later(file, 10, 100)
        await asyncio.to_thread(gate.entered.wait, 20)
        for other in others:
            other.append([b"x"])
            disk.sync_now([other])
        assert "f000" in open_names(tmp_path)
        os.rename(file.path, file.path + ".deleted")
        file.close()
        assert "f000.deleted" in open_names(tmp_path)
        gate.opened.set()
        assert await reading == CONTENT[10:110]
        await asyncio.sleep(0)  # the loop is told of the end after the reader
        assert "f000.deleted" not in open_names(tmp_path)
        assert await disk.read_later(file, 0, 10) == b"", "nothing is left of it"

    asyncio.run(read())


@needs_proc
def test_a_reader_that_leaves_frees_the_descriptor_when_the_thread_is_done(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    (file,) = create(disk, tmp_path, 1)
    file.append([CONTENT])
    disk.sync_now([file])
    gate = Gate(disk)

    async def read() -> None:
        reading = disk.read_later(file, 0, 100)
        await asyncio.to_thread(gate.entered.wait, 20)
        reading.cancel()
        file.close()
        assert open_names(tmp_path) == ["f000"]
        gate.opened.set()
        await asyncio.to_thread(lambda: disk._readers and disk._readers.shutdown(wait=True))
        await asyncio.sleep(0)
        assert open_names(tmp_path) == []

    asyncio.run(read())


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="nothing here tells the system how a file is read")
def test_the_system_reads_ahead_for_the_thread_and_not_for_the_loop(disk: OsDisk, file: OsFile) -> None:
    told: list[tuple[int, int, int]] = []
    disk._advise = lambda fd, position, length, advice: told.append((position, length, advice))
    for _ in range(3):
        file.read_now(0, 100_000)
    assert told == [(0, 0, os.POSIX_FADV_RANDOM)]
    told.clear()

    async def read(length: int) -> bytes:
        return await disk.read_later(file, 0, length)

    asyncio.run(read(100))
    assert told == [], "a look at an index has nothing to follow"
    asyncio.run(read(100_000))
    assert [(position, advice) for position, _, advice in told] == [(100_000, os.POSIX_FADV_WILLNEED)]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="nothing here tells the system how a file is read")
def test_a_hint_that_fails_is_no_failed_read(disk: OsDisk, file: OsFile) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    disk._advise = fail

    async def read() -> bytes:
        return await disk.read_later(file, 0, 100_000)

    assert asyncio.run(read()) == CONTENT[:100_000]


MIB = 1 << 20


class Ahead:
    """A file of 20 MiB whose first half MiB was cold, and what the disk was asked to read since."""

    def __init__(self, disk: OsDisk, path: Path) -> None:
        self.disk = disk
        self.file = disk.open(str(path), create=True)
        self.file.append([bytes(20 * MIB)])
        self.asked: list[int] = []
        disk._advise = self._advised

    def _advised(self, fd: int, position: int, length: int, advice: int) -> None:
        os.fstat(fd)  # it is open
        if advice == os.POSIX_FADV_WILLNEED:
            self.asked += range(position // MIB, (position + length) // MIB)

    async def begin(self) -> None:
        await self.disk.read_later(self.file, 0, MIB)

    async def lent(self, position: int, length: int = MIB) -> bool:
        lent = self.file.lend(position, length) is not None
        await self.threads()
        return lent

    async def threads(self) -> None:
        """All that was asked of them is done: each has waited for the others."""
        if self.disk._readers is not None:
            met = threading.Barrier(4)
            for each in [self.disk._readers.submit(met.wait, 20) for _ in range(4)]:
                await asyncio.wrap_future(each)


@pytest.fixture
def ahead(disk: OsDisk, tmp_path: Path) -> Ahead:
    if not hasattr(os, "posix_fadvise") or disk.is_cached is None:
        pytest.skip("this system cannot tell what is in memory")
    ahead = Ahead(disk, tmp_path / "ahead")
    assert is_in_memory(ahead.file, 0)
    return ahead


def test_one_who_reads_on_finds_the_disk_ahead_of_him_to_the_end(ahead: Ahead) -> None:
    async def read() -> None:
        await ahead.begin()
        assert ahead.asked == [1, 2]
        for position in range(1, 20):
            assert await ahead.lent(position * MIB)
            assert ahead.asked == list(range(1, len(ahead.asked) + 1)), "each place once, in order"
            assert min(position + 4, 20) <= len(ahead.asked) + 1
        assert len(ahead.asked) <= 20
        told = len(ahead.asked)
        await ahead.lent(19 * MIB)
        assert len(ahead.asked) == told, "the end was told once"

    asyncio.run(read())


def test_the_disk_is_not_asked_for_those_who_read_elsewhere_nor_in_files_that_were_never_cold(ahead: Ahead) -> None:
    async def read() -> None:
        await ahead.lent(0)
        assert ahead.asked == []
        await ahead.begin()
        ahead.asked.clear()
        await ahead.lent(15 * MIB)
        assert ahead.asked == []
        await ahead.lent(1 * MIB)
        assert ahead.asked == [3, 4]

    asyncio.run(read())


def test_what_the_disk_is_still_reading_is_not_lent(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_work(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    async def read() -> None:
        await ahead.begin()
        monkeypatch.setattr(os, "preadv", at_work)
        assert not await ahead.lent(MIB)
        monkeypatch.undo()
        assert await ahead.lent(MIB)

    asyncio.run(read())


@needs_proc
def test_a_file_that_is_closed_while_the_disk_reads_ahead_keeps_its_descriptor_so_long(
    ahead: Ahead, tmp_path: Path
) -> None:
    entered, opened = threading.Event(), threading.Event()

    def slowly(fd: int, position: int, length: int, advice: int) -> None:
        if advice == os.POSIX_FADV_WILLNEED:
            entered.set()
            assert opened.wait(20)

    async def read() -> None:
        await ahead.begin()
        ahead.disk._advise = slowly
        ahead.file.lend(MIB, MIB)
        await asyncio.to_thread(entered.wait, 20)
        ahead.file.close()
        assert open_names(tmp_path) == ["ahead"]
        opened.set()
        await ahead.threads()
        await asyncio.sleep(0)
        assert open_names(tmp_path) == []

    asyncio.run(read())


def test_truncations_are_counted(file: OsFile) -> None:
    assert file.truncations == 0
    file.truncate(10)
    file.append([b"x"])
    file.truncate(5)
    assert file.truncations == 2
