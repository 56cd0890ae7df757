"""The disk on the operating system: its pool of descriptors, short writes, syncs that fail, and its portable twins."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.runtime import disk as disk_module
from tidelog.runtime import syncfs as syncfs_module
from tidelog.runtime.disk import OsDisk, OsFile
from tidelog.runtime.ephemeral import EphemeralDisk
from tidelog.runtime.syncfs import find_syncfs

MakeDisk = Callable[..., OsDisk]


@pytest.fixture
def make_disk() -> Iterator[MakeDisk]:
    made: list[OsDisk] = []

    def make(kind: type[OsDisk] = OsDisk, **options: Any) -> OsDisk:
        made.append(kind(**options))
        return made[-1]

    yield make
    for disk in made:
        disk.close()


def create(disk: OsDisk, directory: Path, count: int) -> list[OsFile]:
    return [disk.open(str(directory / f"f{n:03}"), create=True) for n in range(count)]


def open_names(directory: Path) -> list[str]:
    """The files below a directory that this process has a descriptor of, as the system knows it."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith(f"{directory}/"):
            names.append(os.path.basename(target))
    return sorted(names)


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="/proc/self/fd tells what is open")


# The pool


@needs_proc
def test_clean_files_share_the_descriptors(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=4)
    files = create(disk, tmp_path, 20)
    for n, file in enumerate(files):
        file.append((bytes([n]),))
        file.sync()
        assert len(open_names(tmp_path)) <= 4
    for _ in range(3):
        for n, file in enumerate(files):
            assert file.read(0, 9) == bytes([n])
            assert len(open_names(tmp_path)) <= 4


@needs_proc
def test_opening_a_file_that_is_there_takes_no_descriptor(make_disk: MakeDisk, tmp_path: Path) -> None:
    """10,000 partitions of three files are opened at start."""
    (tmp_path / "f").write_bytes(b"abc")
    file = make_disk().open(str(tmp_path / "f"))
    assert (file.size(), open_names(tmp_path)) == (3, [])
    assert file.read(1, 2) == b"bc"
    assert open_names(tmp_path) == ["f"]


@needs_proc
def test_a_file_with_unsynced_data_keeps_its_descriptor(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=2, dirty_files_max=100)
    files = create(disk, tmp_path, 12)
    for file in files[:6]:
        file.append((b"x",))
    for file in files:
        file.read(0, 1)
    dirty = [os.path.basename(file.path) for file in files[:6]]
    assert set(open_names(tmp_path)) >= set(dirty)
    files[5].truncate(0)
    files[5].sync()
    assert not files[5].is_dirty


@needs_proc
def test_a_truncate_is_unsynced_data_too(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=1, dirty_files_max=100)
    first, second = create(disk, tmp_path, 2)
    first.append((b"abc",))
    first.sync()
    first.truncate(1)
    second.read(0, 1)
    assert "f000" in open_names(tmp_path)


def test_unsynced_files_are_synced_before_a_descriptor_of_theirs_is_taken(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    disk = make_disk(open_files_max=2, dirty_files_max=3)
    for file in create(disk, tmp_path, 2):
        file.append((b"x",))
    third = disk.open(str(tmp_path / "third"), create=True)
    third.append((b"x",))
    assert synced == []
    disk.open(str(tmp_path / "fourth"), create=True)
    assert synced == ["f000", "f001", "third"]


def test_before_that_they_are_synced_while_the_loop_goes_on(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=2, dirty_files_max=8)
    threads: list[threading.Thread] = []
    disk._data_sync = lambda fd: threads.append(threading.current_thread())

    async def scenario() -> None:
        files = create(disk, tmp_path, 8)
        for number in range(200):
            files[number % 8].append((b"x",))
            while disk._relief is not None:
                await asyncio.wait([disk._relief])

    asyncio.run(scenario())
    assert threads and threading.main_thread() not in threads


def test_how_many_are_open_follows_from_what_the_process_may_open(
    make_disk: MakeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, clean, dirty in ((4096, 1024, 2048), (100, 25, 50), (1 << 20, 4096, 8192)):
        monkeypatch.setattr("tidelog.runtime.disk.descriptors_max", lambda limit=limit: limit)
        disk = make_disk()
        assert (disk.descriptors.open_max, disk._dirty_files_max) == (clean, dirty)


@needs_proc
def test_the_file_used_lately_stays_open(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=3)
    files = create(disk, tmp_path, 3)
    disk.open(str(tmp_path / "g"), create=True).read(0, 1)
    for file in files:
        file.read(0, 1)
        files[2].read(0, 1)
    assert "f002" in open_names(tmp_path)


@needs_proc
def test_close_gives_every_descriptor_back(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    lock = disk.lock(str(tmp_path / ".lock"))
    files = create(disk, tmp_path, 3)
    files[0].append((b"x",))
    files[1].close()
    assert open_names(tmp_path) == [".lock", "f000", "f002"]
    disk.close()
    lock.release()
    assert open_names(tmp_path) == []
    assert str(tmp_path) not in [os.readlink(e) for e in map(Path, links()) if e.is_symlink()]


def links() -> list[str]:
    return [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]


# Writes that do not fit


def limit_writes(disk: OsDisk, *, room: int, most: int | None = None) -> None:
    """A file system with `room` bytes left: short without an error first, then ENOSPC. `most` bytes go in one call."""
    left = [room]

    def pwrite(fd: int, data: Any, position: int) -> int:
        if left[0] == 0 and len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = min(len(data), left[0], most or len(data))
        left[0] -= count
        return os.pwrite(fd, bytes(data)[:count], position)

    disk.pwrite = pwrite
    disk._pwritev = lambda fd, parts, position: pwrite(fd, b"".join(parts), position)


@pytest.mark.parametrize("parts", [[b"0123456789"], [b"0123", b"456789"]])
def test_a_short_write_says_how_much_fitted(make_disk: MakeDisk, tmp_path: Path, parts: list[bytes]) -> None:
    disk = make_disk()
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.append((b"ab",)) == 2
    limit_writes(disk, room=7)
    assert file.append(parts) == 7
    assert (file.size(), file.read(0, 100)) == (9, b"ab0123456")
    assert (file.append(parts), file.size()) == (0, 9)
    file.truncate(2)
    assert (file.size(), (tmp_path / "f").read_bytes()) == (2, b"ab")


@pytest.mark.parametrize("parts", [[b"0123456789"], [b"0123", b"456789"]])
def test_a_write_that_is_short_with_room_left_is_continued(
    make_disk: MakeDisk, tmp_path: Path, parts: list[bytes]
) -> None:
    disk = make_disk()
    limit_writes(disk, room=100, most=3)
    file = disk.open(str(tmp_path / "f"), create=True)
    assert file.append(parts) == 10
    assert (file.size(), file.read(0, 100)) == (10, b"0123456789")


def test_a_write_that_takes_nothing_ends(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    disk.pwrite = lambda fd, data, position: 0
    assert disk.open(str(tmp_path / "f"), create=True).append((b"abc",)) == 0


@pytest.mark.parametrize("first", [0, 3])
def test_an_io_error_is_no_full_disk(make_disk: MakeDisk, tmp_path: Path, first: int) -> None:
    """Also when the first part of the write went through."""
    disk = make_disk()
    counts = [first] if first else []

    def pwrite(fd: int, data: Any, position: int) -> int:
        if counts:
            return counts.pop()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = disk.open(str(tmp_path / "f"), create=True)
    disk.pwrite = pwrite
    with pytest.raises(DiskError, match=f"^cannot write to {file.path}: Input/output error$") as caught:
        file.append((b"0123456789",))
    assert not isinstance(caught.value, DiskFullError)
    assert file.size() == 0


def test_a_read_that_is_short_in_the_middle_is_continued(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append((b"0123456789",))
    disk.pread = lambda fd, length, position: os.pread(fd, min(length, 3), position)
    assert (file.read(1, 8), file.read(5, 100)) == (b"12345678", b"56789")


def test_a_full_disk_keeps_the_old_content_of_a_replaced_file(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = make_disk()
    disk.replace_file(str(tmp_path / "f"), b"old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"^cannot replace .*/f: No space left on device$"):
        disk.replace_file(str(tmp_path / "f"), b"new")
    assert (disk.read_file(str(tmp_path / "f")), disk.list_dir(str(tmp_path))) == (b"old", ["f"])


# Syncs


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were synced, in order; for disks that are made afterwards."""
    synced: list[str] = []
    system = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        system(fd)

    monkeypatch.setattr(os, "fdatasync", fsync)
    monkeypatch.setattr(os, "fsync", fsync)
    return synced


@needs_proc
def test_every_sync_is_one_call_per_file_and_directory(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    disk = make_disk()
    one, two = create(disk, tmp_path, 2)
    one.append((b"x",))
    assert synced == []
    one.sync()
    disk.sync_now((one, two), [str(tmp_path), str(tmp_path)])
    asyncio.run(wait(disk, [two], [str(tmp_path)]))
    assert synced == ["f000", "f000", "f001", tmp_path.name, "f001", tmp_path.name]


async def wait(disk: OsDisk, files: list[OsFile], directories: list[str]) -> None:
    await disk.sync(files, directories)


@needs_proc
def test_a_replaced_file_is_synced_before_it_gets_its_name_and_the_name_after(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = record_syncs(monkeypatch)
    system = os.replace

    def replace(old: str, new: str) -> None:
        done.append("rename")
        system(old, new)

    monkeypatch.setattr(os, "replace", replace)
    disk = make_disk()
    disk.replace_file(str(tmp_path / "f"), b"x")
    assert done == ["f.tmp", "rename", tmp_path.name]
    done.clear()
    disk.replace_file(str(tmp_path / "f"), b"y", durable=False)
    assert done == ["rename"]


def test_a_sync_runs_beside_the_loop_and_covers_what_was_there_before_it(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    file = disk.open(str(tmp_path / "f"), create=True)
    entered, go = threading.Event(), threading.Event()
    threads: list[str] = []

    def slow(fd: int) -> None:
        threads.append(threading.current_thread().name)
        entered.set()
        go.wait(5)

    disk._data_sync = slow

    async def main() -> None:
        file.append((b"before",))
        done = disk.sync([file])
        await asyncio.get_running_loop().run_in_executor(None, entered.wait)
        assert not done.done()
        file.append((b"after",))
        assert file.read(0, 100) == b"beforeafter"
        go.set()
        await done
        assert file.is_dirty, "what came after the call is not part of it"
        await disk.sync([file])
        assert not file.is_dirty

    asyncio.run(main())
    assert all(name.startswith("tidelog-sync") for name in threads)


def test_files_are_removed_beside_the_loop(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = make_disk()
    (tmp_path / "f").write_bytes(b"x")
    entered, go = threading.Event(), threading.Event()
    real = os.unlink

    def slow(path: str) -> None:
        entered.set()
        assert go.wait(5), "the loop waited for the file to be removed"
        real(path)

    monkeypatch.setattr(os, "unlink", slow)

    async def main() -> None:
        done = disk.remove_later([str(tmp_path / "f")])
        await asyncio.get_running_loop().run_in_executor(None, entered.wait)
        go.set()
        await done

    asyncio.run(main())
    assert not (tmp_path / "f").exists()


@needs_proc
def test_a_file_closed_during_its_sync_keeps_its_descriptor_until_the_end(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=1)
    file, other = create(disk, tmp_path, 2)
    file.append((b"x",))
    entered, go = threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        entered.set()
        go.wait(5)
        os.fsync(fd)

    disk._data_sync = slow

    async def main() -> None:
        done = disk.sync([file])
        await asyncio.get_running_loop().run_in_executor(None, entered.wait)
        file.close()
        other.read(0, 1)
        assert "f000" in open_names(tmp_path)
        done.cancel()
        await asyncio.sleep(0)
        assert "f000" in open_names(tmp_path), "the waiter left, the thread did not"
        go.set()

    asyncio.run(main())
    disk.close()
    assert "f000" not in open_names(tmp_path)


@needs_proc
def test_a_file_closed_during_its_sync_gives_its_descriptor_back_at_the_end(
    make_disk: MakeDisk, tmp_path: Path
) -> None:
    disk = make_disk()
    (file,) = create(disk, tmp_path, 1)

    async def main() -> None:
        done = disk.sync([file])
        file.close()
        await done
        assert open_names(tmp_path) == []

    asyncio.run(main())


def test_a_removed_file_is_no_failure_of_the_round(make_disk: MakeDisk, tmp_path: Path) -> None:
    """Retention takes a file between the round's begin and its turn."""
    disk = make_disk(open_files_max=1)
    (tmp_path / "gone").touch()
    gone = disk.open(str(tmp_path / "gone"))
    disk.remove(gone.path)
    disk.sync_now([gone])


def failing(number: int) -> Callable[[int], None]:
    def sync(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    return sync


@pytest.mark.parametrize("blocking", [True, False])
def test_a_failed_sync_is_not_repeated_and_believed(make_disk: MakeDisk, tmp_path: Path, blocking: bool) -> None:
    """The kernel marks the pages clean: a second fsync would say that all is well."""
    disk = make_disk()
    file, other = create(disk, tmp_path, 2)
    system = disk._data_sync

    async def sync() -> None:
        if blocking:
            file.sync()
        else:
            await disk.sync([file])

    async def main() -> None:
        file.append((b"x",))
        disk._data_sync = failing(errno.EIO)
        with pytest.raises(DiskError, match=f"^cannot sync {file.path}: Input/output error$"):
            await sync()
        calls: list[int] = []
        disk._data_sync = lambda fd: (calls.append(fd), system(fd))[1]
        for _ in range(2):
            with pytest.raises(DiskError, match=r"an earlier sync of it failed$"):
                await sync()
        assert (calls, file.is_dirty) == ([], True)
        await disk.sync([other])
        assert len(calls) == 1, "other files are as they were"

    asyncio.run(main())


def test_a_failed_sync_of_a_directory_is_an_error(make_disk: MakeDisk, tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"^cannot sync .*/file: Not a directory$"):
        (tmp_path / "file").touch()
        make_disk().sync_now((), [str(tmp_path / "file")])


def test_a_directory_that_is_gone_has_no_names_to_keep(make_disk: MakeDisk, tmp_path: Path) -> None:
    """A topic is deleted, and its directory renamed, while a round has it."""
    disk = make_disk()
    (file,) = create(disk, tmp_path, 1)
    disk.sync_now([file], [str(tmp_path / "missing")])
    assert not file.is_dirty


def test_a_failed_sync_that_makes_room_for_another_file_is_an_error(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=1, dirty_files_max=1)
    file = disk.open(str(tmp_path / "f"), create=True)
    file.append((b"x",))
    disk._data_sync = failing(errno.EIO)
    with pytest.raises(DiskError, match=f"cannot sync {file.path}"):
        disk.open(str(tmp_path / "g"), create=True)


# One call for a whole file system


def test_many_files_are_one_call_where_the_system_has_it(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    files, calls = [], []
    disk._syncfs = lambda fd: calls.append(os.fstat(fd).st_dev)
    disk._data_sync = failing(errno.EIO)
    disk.lock(str(tmp_path / ".lock")).release()
    for file in create(disk, tmp_path, 17):
        file.append((b"x",))
        files.append(file)
    disk.sync_now(files, [str(tmp_path)])
    assert calls == [tmp_path.stat().st_dev]
    assert not any(file.is_dirty for file in files)
    with pytest.raises(DiskError):
        disk.sync_now(files[:16])


def test_many_files_are_synced_one_by_one_where_errors_were_not_watched_from_the_start(
    make_disk: MakeDisk, tmp_path: Path
) -> None:
    """Without the lock no descriptor was open before the first write, so an error of before would be kept from us."""
    disk = make_disk()
    synced: list[int] = []
    disk._syncfs = failing(errno.EIO)
    disk._data_sync = synced.append
    disk.sync_now(create(disk, tmp_path, 17))
    assert len(synced) == 17


def test_a_failed_sync_of_the_file_system_breaks_the_whole_round(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    disk._syncfs = failing(errno.EIO)
    disk.lock(str(tmp_path / ".lock")).release()
    files = create(disk, tmp_path, 17)
    with pytest.raises(DiskError, match="cannot sync the file system of"):
        disk.sync_now(files)
    for file in files:
        with pytest.raises(DiskError, match="an earlier sync of it failed"):
            file.sync()


@pytest.mark.parametrize(
    ("release", "expected"),
    [("5.8.0", True), ("6.1.0-13-amd64", True), ("5.7.19", False), ("4.19", False), ("", False)],
)
def test_syncfs_is_trusted_from_linux_5_8_on(release: str, expected: bool) -> None:
    assert syncfs_module._reports_errors(release) is expected


def test_syncfs_raises_what_the_system_says() -> None:
    syncfs = find_syncfs()
    if syncfs is None:
        pytest.skip("no syncfs here")
    with pytest.raises(OSError, match="Bad file descriptor"):
        syncfs(-1)


def test_there_is_no_syncfs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find_syncfs() is None


# Without what only some systems have


@pytest.fixture
def bare_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pread", "preadv", "pwrite", "pwritev", "fdatasync", "O_CLOEXEC", "O_DIRECTORY"):
        monkeypatch.delattr(os, name, raising=False)
    for module in ("fcntl", "msvcrt", "resource"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(disk_module, "find_syncfs", lambda: None)


@pytest.mark.usefixtures("bare_system")
def test_a_bare_system_does_the_same(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=2)
    lock = disk.lock(str(tmp_path / ".lock"))
    with pytest.raises(Exception, match="in use by another node"):
        disk.lock(str(tmp_path / ".lock"))
    files = create(disk, tmp_path, 20)
    for turn in range(3):
        for n, file in enumerate(files):
            assert file.append((bytes([turn]), bytearray([n]), b"-")) == 3
            assert file.append((memoryview(b"!"),)) == 1
            assert file.read(4 * turn, 9) == bytes([turn, n]) + b"-!"
    disk.sync_now(files, [str(tmp_path)])
    files[0].truncate(4)
    assert files[0].append((b"end",)) == 3
    assert files[0].read(0, 100) == b"\0\0-!end"
    asyncio.run(wait(disk, files, [str(tmp_path)]))
    disk.replace_file(str(tmp_path / "g"), b"x")
    assert disk.read_file(str(tmp_path / "g")) == b"x"
    lock.release()


@pytest.mark.usefixtures("bare_system")
def test_a_bare_system_reports_short_writes(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_disk().open(str(tmp_path / "f"), create=True)
    system = os.write
    room = [5]

    def write(fd: int, data: Any) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = system(fd, bytes(data)[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", write)
    assert file.append((b"0123", b"4567")) == 5
    monkeypatch.undo()
    assert (file.size(), file.read(0, 100)) == (5, b"01234")


# Data that nobody keeps


@needs_proc
def test_an_ephemeral_disk_syncs_no_file_and_no_directory(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    disk = make_disk(EphemeralDisk, open_files_max=2, dirty_files_max=2)
    disk._syncfs = failing(errno.EIO)
    disk.lock(str(tmp_path / ".lock")).release()
    files = create(disk, tmp_path, 20)
    for file in files:
        file.append((b"x",))
        assert len(open_names(tmp_path)) <= 2

    async def main() -> None:
        done = disk.sync(files, [str(tmp_path)])
        assert done.done()
        await done

    asyncio.run(main())
    disk.sync_now(files, [str(tmp_path)])
    disk.sync_dir(str(tmp_path))
    assert synced == []
    assert not any(file.is_dirty for file in files)


@needs_proc
def test_an_ephemeral_disk_does_not_sync_a_replaced_file(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = record_syncs(monkeypatch)
    disk = make_disk(EphemeralDisk)
    disk.replace_file(str(tmp_path / "f"), b"x")
    assert (synced, disk.read_file(str(tmp_path / "f"))) == ([], b"x")


@needs_proc
def test_the_pool_shrinks_again_once_many_dirty_files_are_synced(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk(open_files_max=2, dirty_files_max=100)
    files = create(disk, tmp_path, 10)
    for file in files:
        file.append((b"x",))
    disk.sync_now(files)
    disk.open(str(tmp_path / "g"), create=True)
    assert len(open_names(tmp_path)) <= 2


def test_a_broken_file_does_not_keep_others_from_being_opened(make_disk: MakeDisk, tmp_path: Path) -> None:
    """Its directory goes offline; the disk's other directories go on."""
    disk = make_disk(open_files_max=1, dirty_files_max=1)
    broken = disk.open(str(tmp_path / "broken"), create=True)
    broken.append((b"x",))
    system, disk._data_sync = disk._data_sync, failing(errno.EIO)
    with pytest.raises(DiskError):
        broken.sync()
    disk._data_sync = system
    other = disk.open(str(tmp_path / "other"), create=True)
    assert other.append((b"y",)) == 1
    other.sync()


def test_a_waiter_that_leaves_before_its_round_began_breaks_no_file(make_disk: MakeDisk, tmp_path: Path) -> None:
    disk = make_disk()
    files = create(disk, tmp_path, 5)
    go = threading.Event()
    disk._data_sync = lambda fd: (go.wait(5), None)[1]

    async def main() -> None:
        busy = [disk.sync([file]) for file in files[:4]]
        files[4].append((b"x",))
        waiting = disk.sync([files[4]])
        waiting.cancel()
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(*busy)
        assert files[4].is_dirty, "nothing was synced for it"
        await disk.sync([files[4]])
        assert not files[4].is_dirty

    asyncio.run(main())


def test_a_directory_on_another_file_system_is_synced_beside_the_one_call(
    make_disk: MakeDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = make_disk()
    disk._syncfs = lambda fd: None
    disk.lock(str(tmp_path / ".lock")).release()
    files = create(disk, tmp_path, 17)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    device = disk_module._device
    monkeypatch.setattr(disk_module, "_device", lambda path: -7 if path == str(elsewhere) else device(path))
    synced: list[str] = []
    monkeypatch.setattr(disk, "_sync_dir", synced.append)
    disk.sync_now(files, [str(tmp_path), str(elsewhere)])
    assert str(elsewhere) in synced


def test_a_round_refused_for_one_broken_file_does_not_break_the_others(make_disk: MakeDisk, tmp_path: Path) -> None:
    """Nothing was tried for them: a directory that is well must not go offline with another."""
    disk = make_disk()
    well, broken = create(disk, tmp_path, 2)
    system, disk._data_sync = disk._data_sync, failing(errno.EIO)
    with pytest.raises(DiskError):
        broken.sync()
    disk._data_sync = system
    with pytest.raises(DiskError, match="an earlier sync of it failed"):
        disk.sync_now([well, broken])
    well.sync()


@pytest.mark.parametrize("opened_before", [True, False])
def test_a_clean_file_in_a_round_keeps_the_descriptor_that_the_thread_uses(
    make_disk: MakeDisk, tmp_path: Path, opened_before: bool
) -> None:
    """Its number would be given to the next file that is opened, and the round would sync that one instead."""
    disk = make_disk(open_files_max=2)
    began, go_on = threading.Event(), threading.Event()

    def wait(fd: int) -> None:
        began.set()
        assert go_on.wait(30)

    disk._data_sync = wait
    file, *others = create(disk, tmp_path, 4)
    if opened_before:
        file.read(0, 1)
    assert (file.fd >= 0) == opened_before

    async def script() -> None:
        done = disk.sync((file,))
        await asyncio.to_thread(began.wait, 30)
        file.read(0, 1)
        for _ in range(2):
            for other in others:
                other.read(0, 1)
        assert file.fd >= 0
        go_on.set()
        await done

    asyncio.run(script())
