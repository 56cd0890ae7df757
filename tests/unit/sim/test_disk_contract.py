"""What every Disk owes its users: the operating system's, the one that syncs nothing, and the simulated one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidelog.kernel.errors import DirectoryLockedError, DiskError
from tidelog.kernel.ports import Disk
from tidelog.runtime.disk import OsDisk
from tidelog.runtime.ephemeral import EphemeralDisk
from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import run


@dataclass(frozen=True)
class Place:
    """A disk, a directory on it that is there and empty, and the loop that suits the disk."""

    disk: Disk
    root: str
    run: Callable[[Coroutine[Any, Any, None]], None]

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"


@pytest.fixture(params=["os", "ephemeral", "sim", "os with 1 descriptor"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sim":
        sim = SimDisk(Random(7), wall_ms=lambda: 1_700_000_000_000)
        sim.make_dirs("data")
        yield Place(sim, "data", run)
        return
    makers: dict[str, Callable[[], OsDisk]] = {
        "os": OsDisk,
        "ephemeral": EphemeralDisk,
        "os with 1 descriptor": lambda: OsDisk(open_files_max=1, dirty_files_max=1),
    }
    disk = makers[request.param]()
    yield Place(disk, str(tmp_path), asyncio.run)
    disk.close()


# Files


def test_parts_are_appended_in_order_and_the_count_is_all_of_them(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    assert file.append((b"ab", bytearray(b"cd"), memoryview(b"ef"))) == 6
    assert file.append((b"gh",)) == 2
    assert (file.size(), file.read(0, 100)) == (8, b"abcdefgh")


def test_more_parts_than_one_system_call_takes(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    parts = [bytes([n % 256]) * (n % 3) for n in range(2_000)]
    assert file.append(parts) == sum(map(len, parts))
    assert file.read(0, 10_000) == b"".join(parts)


def test_an_append_of_nothing_changes_nothing(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    assert (file.append(()), file.append((b"",)), file.append((b"", b"")), file.size()) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("position", "length", "expected"),
    [(0, 3, b"012"), (3, 4, b"3456"), (8, 5, b"89"), (10, 5, b""), (50, 5, b""), (4, 0, b"")],
)
def test_a_read_is_shorter_only_at_the_end(place: Place, position: int, length: int, expected: bytes) -> None:
    file = place.disk.open(place.path("f"), create=True)
    for digit in b"0123456789":
        file.append((bytes([digit]),))
    assert file.read(position, length) == expected


def test_a_buffer_that_the_caller_uses_again_does_not_change_the_file(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    buffer = bytearray(b"first")
    file.append((buffer,))
    file.append((memoryview(buffer),))
    file.append((memoryview(buffer), b"!"))
    buffer[:] = b"XXXXX"
    buffer += b"grown: no view of it is held"
    assert file.read(0, 100) == b"firstfirstfirst!"


def test_truncate_cuts_the_end_and_appends_go_on_from_there(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    file.append((b"0123456789",))
    file.truncate(4)
    assert (file.size(), file.read(0, 100)) == (4, b"0123")
    file.append((b"ab",))
    assert (file.size(), file.read(0, 100)) == (6, b"0123ab")


def test_truncate_beyond_the_end_fills_with_zeros(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    file.append((b"ab",))
    file.truncate(5)
    assert (file.size(), file.read(0, 100)) == (5, b"ab\0\0\0")


def test_an_opened_file_is_as_it_was_left_and_appends_at_its_end(place: Place) -> None:
    path = place.path("f")
    first = place.disk.open(path, create=True)
    first.append((b"abc",))
    first.close()
    again = place.disk.open(path)
    assert (again.path, again.size(), again.read(0, 10)) == (path, 3, b"abc")
    again.append((b"d",))
    again.close()
    assert place.disk.open(path, create=True).read(0, 10) == b"abcd", "create keeps what is there"


def test_a_closed_file_is_refused_and_closing_twice_is_not(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    file.close()
    file.close()
    with pytest.raises(DiskError, match=f"cannot use {file.path}: it is closed"):
        file.append((b"x",))
    with pytest.raises(DiskError, match="it is closed"):
        file.read(0, 1)
    with pytest.raises(DiskError, match="it is closed"):
        file.truncate(0)


def test_files_do_not_mix_when_they_take_turns(place: Place) -> None:
    files = [place.disk.open(place.path(f"f{n}"), create=True) for n in range(5)]
    for turn in range(4):
        for n, file in enumerate(files):
            file.append((bytes([turn, n]),))
    place.disk.sync_now(files)
    assert [file.read(0, 100) for file in files] == [bytes([0, n, 1, n, 2, n, 3, n]) for n in range(5)]


# Small files


def test_read_file_gives_all_or_none(place: Place) -> None:
    assert place.disk.read_file(place.path("f")) is None
    assert place.disk.read_file(place.path("missing/f")) is None
    place.disk.open(place.path("f"), create=True).append((b"abc", b"def"))
    assert place.disk.read_file(place.path("f")) == b"abcdef"


@pytest.mark.parametrize("durable", [True, False])
def test_replace_file_leaves_the_new_content_alone(place: Place, durable: bool) -> None:
    path = place.path("f")
    for data in (b"a long first content", b"short", b""):
        place.disk.replace_file(path, data, durable=durable)
        assert place.disk.read_file(path) == data
    assert place.disk.list_dir(place.root) == ["f"]


def test_replace_file_ignores_what_a_crash_left_in_the_temporary_file(place: Place) -> None:
    place.disk.open(place.path("f.tmp"), create=True).append((b"a longer rest of a crash",))
    place.disk.replace_file(place.path("f"), b"new")
    assert place.disk.read_file(place.path("f")) == b"new"
    assert place.disk.list_dir(place.root) == ["f"]


def test_replace_file_does_not_change_the_file_that_a_reader_has_open(place: Place) -> None:
    place.disk.replace_file(place.path("f"), b"old")
    reader = place.disk.open(place.path("f"))
    assert reader.read(0, 10) == b"old"
    place.disk.replace_file(place.path("f"), b"newer")
    assert reader.read(0, 10) == b"old"


# Names


def test_list_dir_is_sorted_and_holds_files_and_directories(place: Place) -> None:
    for name in ("b", "a", "10", "9", "Z"):
        place.disk.open(place.path(name), create=True)
    place.disk.make_dirs(place.path("aa/deep"))
    assert place.disk.list_dir(place.root) == ["10", "9", "Z", "a", "aa", "b"]


def test_exists_and_is_dir(place: Place) -> None:
    place.disk.make_dirs(place.path("d/e"))
    place.disk.make_dirs(place.path("d/e"))
    place.disk.open(place.path("d/f"), create=True)
    seen = {n: (place.disk.exists(place.path(n)), place.disk.is_dir(place.path(n))) for n in ("d", "d/e", "d/f", "g")}
    assert seen == {"d": (True, True), "d/e": (True, True), "d/f": (True, False), "g": (False, False)}
    assert not place.disk.exists(place.path("d/f/below a file"))


def test_rename_moves_files_and_directories(place: Place) -> None:
    disk = place.disk
    disk.make_dirs(place.path("d"))
    disk.replace_file(place.path("d/f"), b"content")
    disk.rename(place.path("d/f"), place.path("d/g"))
    disk.rename(place.path("d"), place.path("e"))
    assert (disk.list_dir(place.root), disk.list_dir(place.path("e"))) == (["e"], ["g"])
    disk.rename(place.path("e/g"), place.path("h"))
    assert (disk.list_dir(place.root), disk.list_dir(place.path("e"))) == (["e", "h"], [])
    assert disk.read_file(place.path("h")) == b"content"


def test_rename_replaces_a_file(place: Place) -> None:
    place.disk.replace_file(place.path("a"), b"a")
    place.disk.replace_file(place.path("b"), b"b")
    place.disk.rename(place.path("a"), place.path("b"))
    assert (place.disk.list_dir(place.root), place.disk.read_file(place.path("b"))) == (["b"], b"a")


def test_remove_is_done_once_and_forgiven_after(place: Place) -> None:
    place.disk.replace_file(place.path("f"), b"x")
    place.disk.remove(place.path("f"))
    assert not place.disk.exists(place.path("f"))
    place.disk.remove(place.path("f"))


def test_a_removed_file_that_comes_back_is_empty(place: Place) -> None:
    place.disk.replace_file(place.path("f"), b"x")
    place.disk.remove(place.path("f"))
    assert place.disk.open(place.path("f"), create=True).size() == 0


def test_remove_tree_takes_everything_below_and_nothing_beside(place: Place) -> None:
    for name in ("d", "d/e", "dd"):
        place.disk.make_dirs(place.path(name))
        place.disk.replace_file(place.path(f"{name}/f"), b"x")
    place.disk.remove_tree(place.path("d"))
    place.disk.remove_tree(place.path("d"))
    assert place.disk.list_dir(place.root) == ["dd"]
    assert place.disk.read_file(place.path("dd/f")) == b"x"


def test_files_and_trees_are_removed_later(place: Place) -> None:
    disk = place.disk

    async def main() -> None:
        for name in ("d", "d/e", "dd"):
            disk.make_dirs(place.path(name))
            disk.replace_file(place.path(f"{name}/f"), b"x")
        await disk.remove_later([place.path(name) for name in ("d", "dd/f", "missing", "missing/f")])
        assert disk.list_dir(place.root) == ["dd"]
        assert disk.list_dir(place.path("dd")) == []

    place.run(main())


def test_modified_ms_is_a_date(place: Place) -> None:
    place.disk.replace_file(place.path("f"), b"x")
    assert 1_600_000_000_000 < place.disk.modified_ms(place.path("f")) < 5_000_000_000_000


def test_space_is_all_and_free(place: Place) -> None:
    total, free = place.disk.space(place.root)
    assert 0 < free <= total


def test_remove_forgives_a_directory_that_is_gone_too(place: Place) -> None:
    place.disk.remove(place.path("missing/f"))
    place.disk.remove_tree(place.path("missing/d"))
    assert place.disk.list_dir(place.root) == []


def test_names_are_refused_where_a_file_and_a_directory_would_be_taken_for_each_other(place: Place) -> None:
    disk = place.disk
    disk.make_dirs(place.path("d"))
    disk.make_dirs(place.path("e"))
    disk.replace_file(place.path("d/f"), b"d")
    disk.replace_file(place.path("e/f"), b"e")
    disk.replace_file(place.path("f"), b"x")
    tries: dict[str, Callable[[], object]] = {
        "remove a directory": lambda: disk.remove(place.path("d")),
        "remove a file as a tree": lambda: disk.remove_tree(place.path("f")),
        "rename over a full directory": lambda: disk.rename(place.path("e"), place.path("d")),
        "rename a file over a directory": lambda: disk.rename(place.path("f"), place.path("d")),
        "rename a directory over a file": lambda: disk.rename(place.path("d"), place.path("f")),
        "replace a directory": lambda: disk.replace_file(place.path("d"), b""),
    }
    allowed = []
    for what, attempt in tries.items():
        try:
            attempt()
        except DiskError:
            continue
        allowed.append(what)
    assert allowed == []
    assert disk.read_file(place.path("d/f")) == b"d"
    assert disk.read_file(place.path("f")) == b"x"


# The lock


def test_a_lock_is_refused_twice_and_free_after_release(place: Place) -> None:
    lock = place.disk.lock(place.path(".lock"))
    for _ in range(2):
        with pytest.raises(DirectoryLockedError, match=f"the data directory {place.root} is in use by another node"):
            place.disk.lock(place.path(".lock"))
    lock.release()
    place.disk.lock(place.path(".lock")).release()


def test_locks_of_two_directories_are_two(place: Place) -> None:
    place.disk.make_dirs(place.path("d"))
    one = place.disk.lock(place.path(".lock"))
    two = place.disk.lock(place.path("d/.lock"))
    one.release()
    with pytest.raises(DirectoryLockedError):
        place.disk.lock(place.path("d/.lock"))
    two.release()


def test_a_second_release_does_not_free_the_lock_of_the_next_owner(place: Place) -> None:
    first = place.disk.lock(place.path(".lock"))
    first.release()
    second = place.disk.lock(place.path(".lock"))
    first.release()
    with pytest.raises(DirectoryLockedError):
        place.disk.lock(place.path(".lock"))
    second.release()


# Durability


def test_sync_takes_files_and_directories_open_or_closed(place: Place) -> None:
    async def main() -> None:
        files = [place.disk.open(place.path(f"f{n}"), create=True) for n in range(40)]
        for file in files:
            file.append((b"x",))
        files[3].close()
        await place.disk.sync(files, [place.root, place.root])
        await place.disk.sync((), [place.root])
        await place.disk.sync(())
        place.disk.sync_now(files[4:], [place.root])
        files[5].sync()
        assert files[6].append((b"y",)) == 1
        assert files[6].read(0, 5) == b"xy"

    place.run(main())


# Errors are sentences


def test_errors_name_what_was_tried_and_where(place: Place) -> None:
    disk, missing = place.disk, place.path("missing")
    place.disk.replace_file(place.path("f"), b"x")
    tries: dict[str, Callable[[], object]] = {
        "open": lambda: disk.open(missing),
        "open in no directory": lambda: disk.open(f"{missing}/f", create=True),
        "rename": lambda: disk.rename(missing, place.path("new")),
        "rename into no directory": lambda: disk.rename(place.path("f"), f"{missing}/f"),
        "list": lambda: disk.list_dir(missing),
        "list a file": lambda: disk.list_dir(place.path("f")),
        "modified": lambda: disk.modified_ms(missing),
        "replace in no directory": lambda: disk.replace_file(f"{missing}/f", b""),
        "make over a file": lambda: disk.make_dirs(place.path("f/d")),
        "lock in no directory": lambda: disk.lock(f"{missing}/.lock"),
    }
    for what, attempt in tries.items():
        with pytest.raises(DiskError) as caught:
            attempt()
        text = str(caught.value)
        assert text.startswith("cannot "), what
        assert place.root in text, what
        assert ": " in text, what
    assert (disk.list_dir(place.root), disk.read_file(place.path("f"))) == (["f"], b"x")
