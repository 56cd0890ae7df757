"""The metadata quorum of one voter on a disk that forgets: epochs, replay, snapshots, a crash at every operation."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from tidelog.kernel.errors import DiskError, DiskFullError, TidelogError
from tidelog.log.config import LogConfig
from tidelog.protocol.batch import crc_is_valid, iter_headers
from tidelog.raft.quorum import Committed, Quorum
from tidelog.raft.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from tidelog.raft.snapshots import SnapshotId, list_snapshots, read_snapshot, write_snapshot
from tidelog.raft.voters import NO_VOTERS
from tidelog.sim.disk import DiskFaults, SimDisk, SimulatedCrash
from tidelog.sim.loop import run

DIR = "data/__cluster_metadata-0"


class Clock:
    def wall_ms(self) -> int:
        return 1_000

    def monotonic_s(self) -> float:
        return 1.0


class Voter:
    """A quorum and the state that its records make: simply all values, in order. A snapshot is all of them again."""

    def __init__(self, disk: SimDisk, *, snapshot_bytes: int = 1 << 30, segment_bytes: int = 1 << 30) -> None:
        config = LogConfig(segment_bytes=segment_bytes, retention_ms=-1)
        self.quorum = Quorum(disk, Clock(), "data", 1, config=config, snapshot_bytes=snapshot_bytes)
        self.state: list[bytes] = []
        self.batches: list[Committed] = []

    def start(self) -> Voter:
        for committed in self.quorum.start():
            self.batches.append(committed)
            self.state += committed.values
        return self

    async def append(self, *values: bytes) -> Committed:
        committed = await self.quorum.append(values)
        self.state += values
        self.quorum.maybe_snapshot(lambda: self.state)
        return committed


def new_disk(seed: int = 1, **faults: Any) -> SimDisk:
    disk = SimDisk(Random(seed), DiskFaults(**faults))
    disk.make_dirs("data")
    disk.sync_dir("data")
    disk.sync_dir("")
    return disk


def on_loop(scenario: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        run(scenario())

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


def state_on(disk: SimDisk) -> dict[str, Any]:
    data = disk.read_file(f"{DIR}/quorum-state")
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


# epochs


@on_loop
async def test_every_start_has_an_epoch_of_its_own() -> None:
    disk = new_disk()
    for expected in (1, 2, 3):
        voter = Voter(disk).start()
        assert voter.quorum.epoch == expected
        committed = await voter.append(b"value")
        assert committed.epoch == expected
        voter.quorum.close()


@on_loop
async def test_the_epoch_is_durable_before_the_first_record_of_it() -> None:
    disk = new_disk()
    disk.trace = []
    Voter(disk).start()
    names = [line for line in disk.trace if "quorum-state" in line or "append" in line]
    renamed = next(number for number, line in enumerate(disk.trace) if line.startswith("rename") and "quorum" in line)
    directory_synced = next(n for n, line in enumerate(disk.trace) if n > renamed and line == f"sync {DIR}")
    first_record = next(n for n, line in enumerate(disk.trace) if line.startswith("append") and ".log" in line)
    assert renamed < directory_synced < first_record, names
    assert disk.trace[-1].startswith("sync"), "and the record itself before anyone hears of the leader"


def test_the_file_is_kafkas() -> None:
    disk = new_disk()
    Voter(disk).start()
    assert disk.read_file(f"{DIR}/quorum-state") == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )


@on_loop
async def test_an_epoch_is_never_used_twice_even_if_the_file_is_lost() -> None:
    disk = new_disk()
    voter = Voter(disk).start()
    await voter.append(b"a")
    voter.quorum.close()
    disk.remove(f"{DIR}/quorum-state")
    assert Voter(disk).start().quorum.epoch == 2


def test_the_file_reads_what_was_written_and_kafkas_other_form() -> None:
    disk = new_disk()
    write_quorum_state(disk, "data/q", QuorumState(7, 12, (7, 8)))
    assert read_quorum_state(disk, "data/q") == QuorumState(7, 12, (7, 8))
    newer = b'{"leaderId":1,"leaderEpoch":4,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    disk.replace_file("data/q", newer)
    assert read_quorum_state(disk, "data/q") == QuorumState(1, 4, version=1)
    assert read_quorum_state(disk, "data/none") == QuorumState()


@pytest.mark.parametrize("content", [b"garbage", b"[]", b"5", b'{"leaderId":1}', b'{"leaderId":1,"leaderEpoch":"x"}'])
def test_a_damaged_file_is_a_sentence_with_a_next_step(content: bytes) -> None:
    disk = new_disk()
    disk.replace_file("data/q", content)
    with pytest.raises(TidelogError, match=r"data/q cannot be read .*it is safe to remove it"):
        read_quorum_state(disk, "data/q")


# replay


@on_loop
async def test_what_was_committed_comes_back_batch_by_batch() -> None:
    disk = new_disk()
    voter = Voter(disk).start()
    assert voter.batches == []
    first = await voter.append(b"a", b"b")
    second = await voter.append(b"c")
    assert (first.base_offset, second.base_offset) == (1, 3), "offset 0 is the change of leader"
    again = Voter(disk).start()
    assert [(c.base_offset, c.epoch, list(c.values)) for c in again.batches] == [(1, 1, [b"a", b"b"]), (3, 1, [b"c"])]
    third = await again.append(b"d")
    assert (third.base_offset, third.epoch) == (5, 2)


@on_loop
async def test_a_log_of_many_segments_and_reads_comes_back_whole() -> None:
    disk = new_disk()
    voter = Voter(disk, segment_bytes=2_000).start()
    for number in range(100):
        await voter.append(b"%d" % number * 30, b"second")
    voter.quorum.close()
    assert Voter(disk, segment_bytes=2_000).start().state == voter.state


@on_loop
async def test_a_farewell_is_the_last_batch_and_durable() -> None:
    disk = new_disk()
    voter = Voter(disk).start()
    await voter.append(b"1")
    voter.quorum.close([b"bye", b"bye"])
    disk = disk.crash(keep_page_cache=False)
    assert Voter(disk).start().state == [b"1", b"bye", b"bye"]


@on_loop
async def test_a_farewell_that_finds_no_room_does_not_keep_the_quorum_from_closing() -> None:
    disk = new_disk(capacity_bytes=1_100)
    voter = Voter(disk).start()
    await voter.append(b"1")
    voter.quorum.close([bytes(2_000)])
    disk.faults.capacity_bytes = None
    assert Voter(disk).start().state == [b"1"]


@on_loop
async def test_a_torn_tail_is_cut_off() -> None:
    disk = new_disk()
    voter = Voter(disk).start()
    await voter.append(b"kept")
    whole = voter.quorum.end_offset
    await voter.append(b"torn" * 50)
    log = disk.open(f"{DIR}/{0:020d}.log")
    log.truncate(log.size() - 7)
    again = Voter(disk).start()
    assert again.state == [b"kept"]
    assert again.quorum.end_offset == whole + 1
    await again.append(b"goes on")
    assert Voter(disk).start().state == [b"kept", b"goes on"]


# snapshots


@on_loop
async def test_a_snapshot_and_the_rest_of_the_log() -> None:
    disk = new_disk()
    voter = Voter(disk, snapshot_bytes=300).start()
    for _ in range(20):
        await voter.append(b"value-%d" % len(voter.state))
        if list_snapshots(disk, DIR) and list_snapshots(disk, DIR)[-1].end_offset < voter.quorum.end_offset:
            break
    (snapshot,) = list_snapshots(disk, DIR)
    again = Voter(disk, snapshot_bytes=300).start()
    assert again.state == voter.state
    assert len(again.batches) > 1, "there is a rest"
    first = again.batches[0]
    assert first.base_offset + len(first.values) == snapshot.end_offset, (
        "the image that it makes ends where the snapshot does"
    )
    assert again.batches[1].base_offset >= snapshot.end_offset


@on_loop
async def test_old_snapshots_and_segments_go() -> None:
    disk = new_disk()
    voter = Voter(disk, snapshot_bytes=400, segment_bytes=500).start()
    for number in range(60):
        await voter.append(b"value-%d" % number)
    names = disk.list_dir(DIR)
    assert len([name for name in names if name.endswith(".checkpoint")]) == 1
    assert len([name for name in names if name.endswith(".log")]) <= 3
    assert not [name for name in names if name.endswith((".deleted", ".part"))], "nobody else takes them away"
    assert Voter(disk, snapshot_bytes=400, segment_bytes=500).start().state == voter.state


@on_loop
async def test_one_of_several_dropped_segments_that_comes_back_costs_nothing() -> None:
    """A power cut may undo some of the renames: what follows the gap is the log, not the far side of a lost tail."""
    disk = new_disk()
    voter = Voter(disk, segment_bytes=300).start()
    for number in range(12):
        await voter.append(b"%d" % number)
    first = disk.read_file(f"{DIR}/{0:020d}.log")
    assert first
    voter.quorum._snapshot_bytes = 1
    await voter.append(b"the last before the snapshot")
    assert not disk.exists(f"{DIR}/{0:020d}.log")
    voter.quorum._snapshot_bytes = 1 << 30
    await voter.append(b"after it")
    disk = disk.crash(keep_page_cache=True)
    disk.open(f"{DIR}/{0:020d}.log", create=True).append([first])
    assert Voter(disk, segment_bytes=300).start().state == voter.state


@on_loop
async def test_a_snapshot_is_written_only_when_the_log_has_grown_enough() -> None:
    disk = new_disk()
    voter = Voter(disk, snapshot_bytes=10_000).start()
    await voter.append(b"small")
    assert list_snapshots(disk, DIR) == []
    await voter.append(bytes(10_000))
    assert len(list_snapshots(disk, DIR)) == 1
    await voter.append(b"small again")
    assert len(list_snapshots(disk, DIR)) == 1
    # The growth before a restart counts as well.
    voter.quorum.close()
    again = Voter(disk, snapshot_bytes=100).start()
    await again.append(b"")
    assert list_snapshots(disk, DIR)[-1].end_offset == again.quorum.end_offset


def test_a_snapshot_is_header_data_and_footer_in_kafkas_batches() -> None:
    disk = new_disk()
    values = [b"%d" % number for number in range(2_500)]
    write_snapshot(disk, "data", SnapshotId(77, 5), values, 3, 4)
    assert disk.list_dir("data") == ["00000000000000000077-0000000005.checkpoint"]
    content = disk.read_file("data/00000000000000000077-0000000005.checkpoint") or b""
    headers = [header for _, header in iter_headers(content)]
    assert [header.is_control for header in headers] == [True, False, False, False, True]
    assert [header.base_offset for header in headers] == [0, 1, 1001, 2001, 2501]
    assert {header.leader_epoch for header in headers} == {5}
    assert all(crc_is_valid(content[at : at + header.size], header) for at, header in iter_headers(content))
    assert read_snapshot(disk, "data", SnapshotId(77, 5)) == (values, NO_VOTERS)


def test_an_empty_snapshot_is_one_too() -> None:
    disk = new_disk()
    write_snapshot(disk, "data", SnapshotId(1, 1), [], 3, 4)
    assert read_snapshot(disk, "data", SnapshotId(1, 1)) == ([], NO_VOTERS)


def test_any_damage_to_a_snapshot_is_a_sentence_that_names_it() -> None:
    """Never a shorter one: topics would be gone, and their directories set aside."""
    disk = new_disk()
    snapshot = SnapshotId(9, 1)
    write_snapshot(disk, "data", snapshot, [b"value-%d" % number for number in range(5)], 3, 4)
    path = f"data/{snapshot.file_name}"
    content = disk.read_file(path) or b""
    for cut in range(len(content)):
        disk.replace_file(path, content[:cut])
        with pytest.raises(TidelogError, match=f"metadata snapshot {path}"):
            read_snapshot(disk, "data", snapshot)
    footer = [position for position, _ in iter_headers(content)][-1]
    for position in range(len(content)):
        for flip in (0x01, 0x80):
            damaged = bytearray(content)
            damaged[position] ^= flip
            disk.replace_file(path, bytes(damaged))
            try:
                found = read_snapshot(disk, "data", snapshot)
            except TidelogError as error:
                assert path in str(error)
            else:
                # Offset and epoch of a batch lie outside its CRC, and nobody reads them.
                assert found == ([b"value-%d" % number for number in range(5)], NO_VOTERS)
                at = max(start for start, _ in iter_headers(content) if start <= position)
                assert position - at < 17 and at <= footer


@on_loop
async def test_a_damaged_snapshot_stops_the_start_and_changes_nothing() -> None:
    disk = new_disk()
    voter = Voter(disk, snapshot_bytes=1).start()
    await voter.append(b"value")
    voter.quorum.close()
    (snapshot,) = list_snapshots(disk, DIR)
    file = disk.open(f"{DIR}/{snapshot.file_name}")
    file.truncate(file.size() - 1)
    before = state_on(disk), disk.read_file(f"{DIR}/{0:020d}.log")
    for _ in range(2):
        with pytest.raises(TidelogError, match="is not complete"):
            Voter(disk).start()
    assert (state_on(disk), disk.read_file(f"{DIR}/{0:020d}.log")) == before


@on_loop
async def test_a_log_without_the_snapshot_it_needs_stops_the_start() -> None:
    """Replaying the rest alone would be a cluster that has forgotten its topics."""
    disk = new_disk()
    voter = Voter(disk, snapshot_bytes=400, segment_bytes=500).start()
    for number in range(60):
        await voter.append(b"value-%d" % number)
    voter.quorum.close()
    (snapshot,) = list_snapshots(disk, DIR)
    disk.remove(f"{DIR}/{snapshot.file_name}")
    with pytest.raises(TidelogError, match=r"begins at offset \d+, and no snapshot"):
        Voter(disk).start()


def test_a_log_that_is_gone_behind_a_snapshot_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """What was committed after the snapshot went with it, and nobody can say whether that was anything."""

    async def scenario() -> None:
        disk = new_disk()
        voter = Voter(disk, snapshot_bytes=1).start()
        await voter.append(b"in the snapshot")
        voter.quorum._snapshot_bytes = 1 << 30
        await voter.append(b"behind it")
        disk = disk.crash(keep_page_cache=True)
        for name in disk.list_dir(DIR):
            if name.endswith(".log"):
                disk.remove(f"{DIR}/{name}")
        assert caplog.messages == []
        assert Voter(disk).start().state == [b"in the snapshot"]
        (snapshot,) = list_snapshots(disk, DIR)
        assert f"{DIR} ends at offset 0: it begins anew behind its newest snapshot, at {snapshot.end_offset}" in (
            caplog.text
        )

    run(scenario())


@on_loop
async def test_leftovers_of_a_snapshot_that_was_never_finished_are_removed() -> None:
    disk = new_disk()
    Voter(disk).start().quorum.close()
    disk.replace_file(f"{DIR}/00000000000000000077-0000000005.checkpoint.part", b"half")
    Voter(disk).start()
    assert not [name for name in disk.list_dir(DIR) if name.endswith(".part")]


# a full or broken disk


@on_loop
async def test_a_full_disk_refuses_the_append_and_the_quorum_goes_on() -> None:
    disk = new_disk(capacity_bytes=2_000)
    voter = Voter(disk).start()
    await voter.append(b"fits")
    end = voter.quorum.end_offset
    with pytest.raises(DiskFullError):
        await voter.append(bytes(5_000))
    assert voter.quorum.end_offset == end
    await voter.append(b"fits too")
    assert Voter(disk).start().state == [b"fits", b"fits too"]


@on_loop
async def test_no_room_for_a_snapshot_is_no_reason_to_stop() -> None:
    disk = new_disk(capacity_bytes=6_000)
    voter = Voter(disk, snapshot_bytes=1_000).start()
    for _ in range(3):
        await voter.append(bytes(1_100))
    assert not [name for name in disk.list_dir(DIR) if name.endswith(".part")], (
        "what was written of it gives its room back"
    )
    assert Voter(disk).start().state == voter.state


@on_loop
async def test_a_sync_that_fails_is_not_a_full_disk() -> None:
    disk = new_disk()
    voter = Voter(disk).start()
    disk.faults = DiskFaults(fail_syncs=True)
    with pytest.raises(DiskError) as caught:
        await voter.append(b"perhaps")
    assert not isinstance(caught.value, DiskFullError)


@on_loop
async def test_a_sync_that_finds_no_room_is_none_either() -> None:
    """File systems that allocate late: the batch is in the page cache, and whether it will be on disk nobody knows."""
    disk = new_disk()
    voter = Voter(disk).start()

    def sync(*_: Any) -> Any:
        raise DiskFullError("cannot sync: No space left on device")

    disk.sync = sync  # type: ignore[method-assign]
    with pytest.raises(DiskError) as caught:
        await voter.append(b"perhaps")
    assert not isinstance(caught.value, DiskFullError)


# crashes


class Script:
    """Start, append, snapshot, stop, start again: with what was promised on the way."""

    def __init__(self, disk: SimDisk, sizes: tuple[int, int]) -> None:
        self.disk = disk
        self.sizes = sizes
        self.written: list[bytes] = []
        self.acknowledged = 0
        self.epoch = 0

    def voter(self, disk: SimDisk) -> Voter:
        snapshot_bytes, segment_bytes = self.sizes
        return Voter(disk, snapshot_bytes=snapshot_bytes, segment_bytes=segment_bytes).start()

    async def play(self) -> None:
        for round_number in range(2):
            voter = self.voter(self.disk)
            self.epoch = voter.quorum.epoch
            for number in range(9):
                values = [b"%d-%d-%d" % (round_number, number, index) for index in range(1 + number % 3)]
                self.written += values
                committed = await voter.quorum.append(values)
                self.acknowledged = len(self.written)
                assert committed.epoch == self.epoch
                voter.state += values
                voter.quorum.maybe_snapshot(lambda: voter.state)  # noqa: B023 - called at once
            if round_number == 0:
                voter.quorum.close()


def operations_of_the_script(sizes: tuple[int, int]) -> int:
    disk = new_disk()
    run(Script(disk, sizes).play())
    return disk.operations


async def _until_the_crash(script: Script) -> None:
    crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    script.disk.on_crash = lambda: crashed.done() or crashed.set_result(None)  # type: ignore[func-returns-value]
    playing = asyncio.ensure_future(script.play())
    await asyncio.wait([playing, crashed], return_when=asyncio.FIRST_COMPLETED)
    playing.cancel()
    # A BaseException that a task raises would end the loop as well.
    with pytest.raises(BaseException):  # noqa: B017
        await playing


def crash_at(number: int, seed: int, sizes: tuple[int, int]) -> Script:
    disk = new_disk(seed)
    disk.faults = DiskFaults(crash_at=number)
    script = Script(disk, sizes)
    with contextlib.suppress(SimulatedCrash):
        run(_until_the_crash(script))
    assert disk.is_crashed
    return script


OFTEN, SELDOM = (350, 400), (900, 150)


@pytest.mark.parametrize(
    ("sizes", "power_cut"),
    [
        pytest.param(OFTEN, False, id="kill, a segment at a time"),
        pytest.param(OFTEN, True, id="power cut, a segment at a time"),
        pytest.param(SELDOM, True, id="power cut, many segments at once"),
    ],
)
def test_a_crash_at_every_operation_keeps_what_was_acknowledged(sizes: tuple[int, int], power_cut: bool) -> None:
    first = new_disk().operations + 1
    for number in range(first, operations_of_the_script(sizes) + 1):
        script = crash_at(number, number, sizes)
        disk = script.disk.crash(keep_page_cache=not power_cut)
        try:
            check(script, disk)
        except BaseException as error:
            error.add_note(f"crash at operation {number}, power cut {power_cut}")
            raise


def check(script: Script, disk: SimDisk) -> None:
    voter = script.voter(disk)
    assert voter.state == script.written[: len(voter.state)], "something was lost in the middle, or mixed"
    assert len(voter.state) >= script.acknowledged, "an acknowledged record is lost"
    assert voter.quorum.epoch > script.epoch, "an epoch is used twice"
    ends = [batch.base_offset + len(batch.values) for batch in voter.batches]
    assert ends == sorted(ends)

    async def go_on() -> None:
        await voter.append(b"after")

    run(go_on())
    again = script.voter(disk)
    assert again.state == voter.state
    assert again.quorum.epoch == voter.quorum.epoch + 1
