"""The simulated disk forgets what was not synced, and never what was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.errors import DiskError, DiskFullError
from tidelog.sim.disk import SimDisk
from tidelog.sim.disk_faults import DiskFaults, SimulatedCrash
from tidelog.sim.loop import run
from tidelog.sim.survivors import SECTOR

SEEDS = range(60)


def new_disk(seed: int = 0, faults: DiskFaults | None = None) -> SimDisk:
    """With a durable, empty directory `d`."""
    disk = SimDisk(Random(seed))
    disk.make_dirs("d")
    disk.sync_dir("")
    disk.operations = 0
    if faults is not None:
        disk.faults = faults
    return disk


def durable_file(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.append((data,))
    disk.sync_now([file], ["d"])


def after_power_cuts(prepare: Callable[[SimDisk], object], look: Callable[[SimDisk], object]) -> set[object]:
    """What a machine may find, over all seeds."""
    found = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        prepare(disk)
        found.add(look(disk.crash(keep_page_cache=False)))
    return found


# A kill, a power cut


def test_a_kill_keeps_all_that_was_written_and_none_of_it_became_durable() -> None:
    def write(disk: SimDisk) -> None:
        disk.open("d/f", create=True).append((b"abc",))
        disk.replace_file("d/g", b"g", durable=False)

    for seed in SEEDS:
        disk = new_disk(seed)
        write(disk)
        killed = disk.crash(keep_page_cache=True)
        assert (killed.list_dir("d"), killed.read_file("d/f"), killed.read_file("d/g")) == (["f", "g"], b"abc", b"g")
    found = {tuple(after_kill_and_cut(write, seed)) for seed in SEEDS}
    assert {(), ("f", "g")} < found


def after_kill_and_cut(write: Callable[[SimDisk], None], seed: int) -> list[str]:
    disk = new_disk(seed)
    write(disk)
    names = disk.crash(keep_page_cache=True).crash(keep_page_cache=False).list_dir("d")
    return [name for name in names if not name.endswith(".tmp")]


def test_what_was_synced_is_there_after_any_power_cut() -> None:
    assert after_power_cuts(
        lambda disk: durable_file(disk, "d/f", b"x" * 2000), lambda disk: disk.read_file("d/f")
    ) == {b"x" * 2000}


def test_a_synced_file_without_a_synced_name_may_be_gone() -> None:
    def prepare(disk: SimDisk) -> None:
        file = disk.open("d/f", create=True)
        file.append((b"x",))
        file.sync()

    assert after_power_cuts(prepare, lambda disk: disk.read_file("d/f")) == {None, b"x"}


def test_a_name_below_a_directory_that_was_not_synced_may_be_gone() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_dirs("d/new")
        file = disk.open("d/new/f", create=True)
        disk.sync_now([file], ["d/new"])

    assert after_power_cuts(prepare, lambda disk: disk.exists("d/new/f")) == {True, False}


def test_an_unsynced_rename_has_happened_or_not_and_a_synced_one_has() -> None:
    def rename(disk: SimDisk) -> None:
        durable_file(disk, "d/a", b"a")
        disk.rename("d/a", "d/b")

    def rename_and_sync(disk: SimDisk) -> None:
        rename(disk)
        disk.sync_dir("d")

    assert after_power_cuts(rename, lambda disk: tuple(disk.list_dir("d"))) == {("a",), ("b",)}
    assert after_power_cuts(rename_and_sync, lambda disk: tuple(disk.list_dir("d"))) == {("b",)}


def test_an_unsynced_removal_may_be_undone() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "d/a", b"a")
        disk.remove("d/a")

    assert after_power_cuts(prepare, lambda disk: disk.read_file("d/a")) == {b"a", None}


def test_an_unsynced_suffix_is_lost_torn_by_sector_or_kept() -> None:
    """Synced to the middle of the first sector; three sectors more are not."""

    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "d/f", b"s" * 100)
        disk.open("d/f").append((b"n" * (4 * SECTOR - 100),))

    found = after_power_cuts(prepare, lambda disk: disk.read_file("d/f"))
    full = b"s" * 100 + b"n" * (4 * SECTOR - 100)
    assert {full, b"s" * 100} < found
    holes = 0
    for content in found:
        assert isinstance(content, bytes)
        assert content[:100] == b"s" * 100
        for start in range(0, len(content), SECTOR):
            sector = content[start : start + SECTOR]
            lost = full[: max(0, 100 - start)] if start == 0 else b""
            assert sector in (full[start : start + len(sector)], lost.ljust(len(sector), b"\0"))
        holes += b"\0n" in content
    assert holes, "a later sector may be there without an earlier one"
    assert any(len(content) % SECTOR for content in found if isinstance(content, bytes) and len(content) > 100)


def test_an_unsynced_truncate_may_be_undone() -> None:
    def prepare(disk: SimDisk) -> None:
        durable_file(disk, "d/f", b"0123456789")
        disk.open("d/f").truncate(4)

    found = after_power_cuts(prepare, lambda disk: disk.read_file("d/f"))
    assert {b"0123", b"0123456789"} < found
    assert all(isinstance(content, bytes) and content[:4] == b"0123" for content in found)


def test_what_survived_a_power_cut_survives_the_next() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.open("d/f", create=True).append((b"n" * 2000,))
        once = disk.crash(keep_page_cache=False)
        kept = contents(once)
        assert contents(once.crash(keep_page_cache=False)) == kept


def contents(disk: SimDisk) -> dict[str, bytes | None]:
    return {name: disk.read_file(f"d/{name}") for name in disk.list_dir("d")}


def test_the_seed_decides() -> None:
    def story(seed: int) -> tuple[object, ...]:
        disk = new_disk(seed)
        for n in range(8):
            disk.open(f"d/{n}", create=True).append((bytes([n + 1]) * 3000,))
        after = disk.crash(keep_page_cache=False)
        return tuple((name, after.read_file(f"d/{name}")) for name in after.list_dir("d"))

    assert [story(seed) for seed in SEEDS] == [story(seed) for seed in SEEDS]
    assert len({story(seed) for seed in SEEDS}) > 10


# Random scripts against a model of what must survive


@dataclass(eq=False)
class Node:
    data: bytes = b""
    durable: bytes = b""
    common: int = 0
    """The shortest that the file was since its last sync: so much is the same before and after."""
    is_clean: bool = True

    def sync(self) -> None:
        self.durable, self.common, self.is_clean = self.data, len(self.data), True

    def resize(self, data: bytes) -> None:
        self.data, self.common, self.is_clean = data, min(self.common, len(data)), False

    def allows(self, found: bytes) -> bool:
        if self.is_clean:
            return found == self.data
        low, high = sorted((len(self.durable), len(self.data)))
        return low <= len(found) <= high and found[: self.common] == self.data[: self.common]


@dataclass
class Model:
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    changes: list[tuple[str | None, str | None]] = field(default_factory=list)

    def change(self, old: str | None, new: str | None, node: Node) -> None:
        self.changes.append((old, new))
        if old is not None:
            del self.entries[old]
        if new is not None:
            self.entries[new] = node

    def sync_dir(self) -> None:
        self.durable, self.changes = dict(self.entries), []

    def check(self, disk: SimDisk) -> None:
        found = {name: disk.read_file(f"d/{name}") for name in disk.list_dir("d")}
        touched = [name for change in self.changes for name in change]
        for name, node in self.durable.items():
            if name not in touched:
                content = found[name]
                assert content is not None
                assert node.allows(content)
        for old, new in self.changes:
            # Renamed, and nothing else happened to either name: it has the one or the other.
            if old in self.durable and new is not None and touched.count(old) == touched.count(new) == 1:
                contents = [found[name] for name in (old, new) if name in found]
                assert any(content is not None and self.durable[old].allows(content) for content in contents)
        assert set(found) <= self.durable.keys() | set(touched)


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NAMES, st.integers(0, 1500)),
        st.tuples(st.just("truncate"), NAMES, st.integers(0, 1500)),
        st.tuples(st.sampled_from(["sync", "remove", "replace"]), NAMES, st.integers(0, 1500)),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("sync_dir"), st.just(""), st.just(0)),
    ),
    max_size=25,
)


def play(disk: SimDisk, model: Model, number: int, what: str, name: str, argument: int | str) -> None:
    node, path, fill = model.entries.get(name), f"d/{name}", bytes([number % 255 + 1])
    if what == "sync_dir":
        disk.sync_dir("d")
        model.sync_dir()
    elif what == "append":
        if node is None:
            node = Node()
            model.change(None, name, node)
        disk.open(path, create=True).append((fill * int(argument),))
        node.resize(node.data + fill * int(argument))
    elif what == "replace":
        disk.replace_file(path, fill * int(argument))
        model.change(None, name, Node(data=fill * int(argument)))
        model.entries[name].sync()
        model.sync_dir()
    elif node is None:
        return
    elif what == "truncate":
        disk.open(path).truncate(min(int(argument), len(node.data)))
        node.resize(node.data[: int(argument)])
    elif what == "sync":
        disk.open(path).sync()
        node.sync()
    elif what == "remove":
        disk.remove(path)
        model.change(name, None, node)
    elif what == "rename" and argument != name:
        disk.rename(path, f"d/{argument}")
        model.change(name, str(argument), node)


@settings(max_examples=250)
@given(STEPS, st.integers(0, 1 << 30))
def test_no_script_loses_what_was_synced(steps: list[tuple[str, str, int | str]], seed: int) -> None:
    disk, model = new_disk(seed), Model()
    for number, step in enumerate(steps):
        play(disk, model, number, *step)
    killed = disk.crash(keep_page_cache=True)
    assert {name: killed.read_file(f"d/{name}") for name in killed.list_dir("d")} == {
        name: node.data for name, node in model.entries.items()
    }
    model.check(disk.crash(keep_page_cache=False))
    model.check(killed.crash(keep_page_cache=False))


# Syncs beside the loop


def test_a_sync_is_durable_when_it_is_done_and_holds_what_was_there_before_it() -> None:
    async def main(seed: int, waits: bool) -> bytes | None:
        disk = new_disk(seed)
        durable_file(disk, "d/f", b"")
        file = disk.open("d/f")
        file.append((b"before",))
        done = disk.sync([file])
        file.append((b"after",))
        assert not done.done()
        if waits:
            await done
        return disk.crash(keep_page_cache=False).read_file("d/f")

    early = {run(main(seed, False), seed) for seed in SEEDS}
    late = {run(main(seed, True), seed) for seed in SEEDS}
    assert b"" in early
    assert {b"before", b"beforeafter"} < late
    assert all(content is not None and content.startswith(b"before") for content in late)


def test_a_name_made_after_the_call_is_not_part_of_the_sync() -> None:
    async def main(seed: int) -> tuple[str, ...]:
        disk = new_disk(seed)
        disk.open("d/a", create=True)
        done = disk.sync((), ["d"])
        disk.open("d/b", create=True)
        await done
        return tuple(disk.crash(keep_page_cache=False).list_dir("d"))

    assert {run(main(seed), seed) for seed in SEEDS} == {("a",), ("a", "b")}


def test_an_older_sync_of_a_file_that_ends_late_does_not_undo_a_newer_one() -> None:
    async def main(seed: int) -> bytes | None:
        disk = new_disk(seed)
        durable_file(disk, "d/f", b"")
        file = disk.open("d/f")
        file.append((b"one",))
        done = disk.sync([file])
        file.append((b"two",))
        file.sync()
        await done
        return disk.crash(keep_page_cache=False).read_file("d/f")

    assert {run(main(seed), seed) for seed in SEEDS} == {b"onetwo"}


def test_syncs_are_counted() -> None:
    async def main() -> list[int]:
        disk = new_disk()
        counts = [disk.sync_count]
        file = disk.open("d/f", create=True)
        file.append((b"x",))
        counts.append(disk.sync_count)
        file.sync()
        counts.append(disk.sync_count)
        await disk.sync([file], ["d"])
        counts.append(disk.sync_count)
        disk.replace_file("d/g", b"x")
        return [*counts, disk.sync_count]

    first, *rest = run(main())
    assert [count - first for count in rest] == [0, 1, 2, 4]


# Faults


def script(disk: SimDisk, said: list[str]) -> None:
    """Every operation that changes the disk; what is said is promised."""
    disk.make_dirs("d/p")
    disk.sync_dir("d")
    file = disk.open("d/p/log", create=True)
    disk.sync_dir("d/p")
    said.append("named")
    file.append((b"one",))
    file.sync()
    said.append("one")
    file.append((b"two" * 500,))
    disk.replace_file("d/p/meta", b"new")
    said.append("meta")
    file.truncate(3)
    disk.rename("d/p", "d/q")
    disk.sync_dir("d")
    said.append("moved")
    disk.remove_tree("d/q")
    disk.sync_dir("d")
    said.append("removed")


def count_operations() -> int:
    disk = new_disk()
    script(disk, [])
    return disk.operations


@pytest.mark.parametrize("keep_page_cache", [True, False])
def test_a_crash_at_every_operation_keeps_the_promises(keep_page_cache: bool) -> None:
    total = count_operations()
    assert total > 15
    for crash_at in range(1, total + 1):
        for seed in range(10):
            disk, said = new_disk(seed, DiskFaults(crash_at=crash_at)), list[str]()
            with pytest.raises(SimulatedCrash):
                script(disk, said)
            assert disk.is_crashed
            after = disk.crash(keep_page_cache=keep_page_cache)
            assert after.faults.crash_at is None
            check_promises(after, said)


def check_promises(disk: SimDisk, said: list[str]) -> None:
    where = "d/q" if disk.exists("d/q") else "d/p"
    removing = "moved" in said
    if "named" in said and not removing:
        content = disk.read_file(f"{where}/log")
        assert content is not None
        assert "one" not in said or content[:3] == b"one"
        meta = disk.read_file(f"{where}/meta")
        assert meta in ((b"new",) if "meta" in said else (None, b"new"))
    if removing:
        assert not disk.exists("d/p")
    assert "removed" not in said or not disk.exists("d/q")


def test_a_crash_leaves_a_part_of_the_write() -> None:
    sizes = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        file = disk.open("d/f", create=True)
        disk.faults.crash_at = disk.operations + 1
        with pytest.raises(SimulatedCrash):
            file.append((b"x" * 100,))
        content = disk.crash(keep_page_cache=True).read_file("d/f")
        assert content == b"x" * len(content or b"")
        sizes.add(len(content))
    assert len(sizes) > 10
    assert max(sizes) <= 100


def test_replace_file_is_never_a_mix_at_any_crash() -> None:
    old, new = b"o" * 2000, b"n" * 3000
    for durable, keep in ((True, True), (True, False), (False, True)):
        found = set()
        for crash_at in range(1, 8):
            for seed in range(20):
                disk = new_disk(seed)
                disk.replace_file("d/f", old)
                disk.faults.crash_at = disk.operations + crash_at
                try:
                    disk.replace_file("d/f", new, durable=durable)
                except SimulatedCrash:
                    found.add(disk.crash(keep_page_cache=keep).read_file("d/f"))
        assert found == ({old, new} if durable else {old})


def test_the_harness_hears_of_the_crash_before_the_code_does() -> None:
    order: list[str] = []
    disk = new_disk(0, DiskFaults(crash_at=2))
    disk.on_crash = lambda: order.append("killed")
    file = disk.open("d/f", create=True)
    with pytest.raises(SimulatedCrash):
        file.append((b"x",))
    order.append("raised")
    with pytest.raises(SimulatedCrash):
        file.append((b"x",))
    assert order == ["killed", "raised"]


def test_code_that_catches_every_error_does_not_catch_the_crash() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_crash_in_a_sync_under_way_is_never_an_answer() -> None:
    async def main() -> bool:
        disk = new_disk()
        file = disk.open("d/f", create=True)
        disk.faults.crash_at = disk.operations + 1
        done = disk.sync([file])
        await asyncio.sleep(10)
        assert disk.is_crashed
        return done.done()

    assert run(main()) is False


def test_fail_at_every_operation_is_one_error_and_nothing_changed_by_it() -> None:
    for fail_at in range(1, count_operations() + 1):
        disk = new_disk(0, DiskFaults(fail_at=fail_at))
        disk.trace = []
        with pytest.raises(DiskError, match=r"^cannot .*: Input/output error$"):
            script(disk, [])
        # A file that was to be replaced takes its temporary one away.
        assert disk.trace[fail_at:] in ([], ["remove d/p/meta.tmp"])
        assert not disk.is_crashed
        disk.make_dirs("d/goes/on")


def test_a_failed_append_or_rename_did_not_happen() -> None:
    disk = new_disk()
    file = disk.open("d/f", create=True)
    for attempt in (lambda: file.append((b"x",)), lambda: disk.rename("d/f", "d/g"), lambda: disk.remove("d/f")):
        disk.faults.fail_at = disk.operations + 1
        with pytest.raises(DiskError):
            attempt()
    assert (disk.list_dir("d"), file.size()) == (["f"], 0)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_failed_sync_makes_nothing_durable(blocking: bool) -> None:
    async def main(seed: int) -> bytes | None:
        disk = new_disk(seed, DiskFaults())
        durable_file(disk, "d/f", b"")
        file = disk.open("d/f")
        file.append((b"x",))
        disk.faults.fail_syncs = True
        with pytest.raises(DiskError, match=r"^cannot sync d/f: Input/output error$"):
            if blocking:
                file.sync()
            else:
                await disk.sync([file])
        return disk.crash(keep_page_cache=False).read_file("d/f")

    assert b"" in {run(main(seed), seed) for seed in SEEDS}


def test_a_full_disk_makes_writes_short_until_there_is_room() -> None:
    disk = new_disk(0, DiskFaults(capacity_bytes=10))
    file = disk.open("d/f", create=True)
    assert file.append((b"0123456",)) == 7
    assert disk.space("d") == (10, 3)
    assert file.append((b"abc", b"def")) == 3
    assert (file.read(0, 100), file.append((b"x",)), disk.space("d")) == (b"0123456abc", 0, (10, 0))
    file.truncate(7)
    assert file.append((b"xyz",)) == 3
    disk.remove("d/f")
    assert disk.space("d") == (10, 10)


def test_a_full_disk_keeps_the_old_content_of_a_replaced_file() -> None:
    disk = new_disk(0, DiskFaults(capacity_bytes=10))
    disk.replace_file("d/f", b"old")
    with pytest.raises(DiskFullError, match=r"^cannot replace d/f: no room$"):
        disk.replace_file("d/f", b"12345678")
    assert (disk.list_dir("d"), disk.read_file("d/f")) == (["f"], b"old")


def test_a_crash_frees_the_locks() -> None:
    disk = new_disk()
    disk.lock("d/.lock")
    disk.crash(keep_page_cache=True).lock("d/.lock")


def test_time_of_change_comes_from_the_clock_and_survives() -> None:
    now = [5]
    disk = SimDisk(Random(0), wall_ms=lambda: now[0])
    disk.make_dirs("d")
    file = disk.open("d/f", create=True)
    file.append((b"x",))
    now[0] = 9
    file.read(0, 1)
    assert disk.modified_ms("d/f") == 5
    file.truncate(0)
    now[0] = 11
    assert disk.crash(keep_page_cache=True).modified_ms("d/f") == 9


def test_many_small_appends_read_back_across_their_borders() -> None:
    file = new_disk().open("d/f", create=True)
    expected = b""
    for n in range(300):
        part = bytes([n % 256]) * (n % 7)
        file.append((part,))
        expected += part
    for position in range(0, len(expected), 13):
        assert file.read(position, 40) == expected[position : position + 40]


def test_an_older_sync_of_a_directory_that_ends_late_does_not_undo_a_newer_one() -> None:
    async def main(seed: int) -> tuple[str, ...]:
        disk = new_disk(seed)
        disk.open("d/a", create=True)
        done = disk.sync((), ["d"])
        disk.open("d/b", create=True)
        disk.sync_dir("d")
        disk.open("d/c", create=True)
        await done
        return tuple(disk.crash(keep_page_cache=False).list_dir("d"))

    assert {run(main(seed), seed) for seed in SEEDS} == {("a", "b"), ("a", "b", "c")}


@pytest.mark.parametrize("blocking", [True, False])
def test_a_failed_sync_is_not_repeated_and_believed(blocking: bool) -> None:
    """As on the real disk: the kernel would say that all is well, with the data gone."""

    async def main() -> None:
        disk = new_disk()
        file = disk.open("d/f", create=True)
        other = disk.open("d/g", create=True)

        async def sync() -> None:
            if blocking:
                file.sync()
            else:
                await disk.sync([file])

        disk.faults = DiskFaults(fail_syncs=True)
        with pytest.raises(DiskError, match="Input/output error"):
            await sync()
        disk.faults = DiskFaults()
        for _ in range(2):
            with pytest.raises(DiskError, match=r"^cannot sync d/f: an earlier sync of it failed$"):
                await sync()
        await disk.sync([other])

    run(main())


def test_a_stopped_machine_answers_nothing() -> None:
    disk = new_disk()
    file = disk.open("d/f", create=True)
    disk.crash(keep_page_cache=True)
    tries: dict[str, Callable[[], object]] = {
        "append": lambda: file.append((b"x",)),
        "read": lambda: file.read(0, 1),
        "truncate": lambda: file.truncate(0),
        "sync a file": file.sync,
        "open": lambda: disk.open("d/f"),
        "open a missing one": lambda: disk.open("missing/f"),
        "read_file": lambda: disk.read_file("d/f"),
        "replace_file": lambda: disk.replace_file("d/f", b""),
        "exists": lambda: disk.exists("d"),
        "is_dir": lambda: disk.is_dir("d"),
        "list_dir": lambda: disk.list_dir("d"),
        "make_dirs": lambda: disk.make_dirs("d"),
        "rename": lambda: disk.rename("d/missing", "d/g"),
        "remove": lambda: disk.remove("d/missing"),
        "remove_tree": lambda: disk.remove_tree("d/missing"),
        "modified_ms": lambda: disk.modified_ms("d/f"),
        "sync_dir": lambda: disk.sync_dir("d"),
        "lock": lambda: disk.lock("d/.lock"),
        "space": lambda: disk.space("d"),
    }
    answered = []
    for what, attempt in tries.items():
        try:
            attempt()
        except SimulatedCrash:
            continue
        except DiskError:
            pass
        answered.append(what)
    assert answered == []
