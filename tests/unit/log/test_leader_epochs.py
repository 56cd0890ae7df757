"""The leader epochs of a log: the checkpoint's text, what is assigned, where an epoch ended (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest

from tests.unit.log.helpers import DIRECTORY, append, batch_of, open_log, sim_disk
from tidelog.kernel.errors import DiskFullError
from tidelog.log.errors import CorruptFileError
from tidelog.log.leader_epochs import EpochEnd, EpochStart, LeaderEpochs
from tidelog.sim.disk import SimDisk

FILE = f"{DIRECTORY}/leader-epoch-checkpoint"
UNDEFINED = EpochEnd(-1, -1)


def epochs_of(*pairs: tuple[int, int], disk: SimDisk | None = None) -> LeaderEpochs:
    disk = disk or sim_disk()
    disk.make_dirs(DIRECTORY)
    epochs = LeaderEpochs(disk, DIRECTORY)
    for epoch, start in pairs:
        epochs.assign(epoch, start)
    return epochs


def test_the_checkpoint_has_one_line_an_epoch() -> None:
    disk = sim_disk()
    epochs_of((0, 0), (2, 10), (5, 10_000_000_000), disk=disk)
    assert disk.read_file(FILE) == b"0\n3\n0 0\n2 10\n5 10000000000\n"
    again = LeaderEpochs(disk, DIRECTORY)
    assert again.load()
    assert again.entries == (EpochStart(0, 0), EpochStart(2, 10), EpochStart(5, 10_000_000_000))
    assert again.latest == 5


def test_an_epoch_of_the_leader_is_written_down_before_its_first_batch() -> None:
    """Not at a later flush: a start takes a last batch whose epoch the file does not know for damaged, and a kill -9
    would have taken what page-cache mode had acknowledged."""
    disk = sim_disk()
    log = open_log(disk)
    log.leader_epochs.begin(0, log.log_end_offset)
    log.flush()
    assert disk.read_file(FILE) is None, "a start would drop it"
    assert log.leader_epochs.latest == 0
    append(log, leader_epoch=0)
    assert disk.read_file(FILE) == b"0\n1\n0 0\n"
    log.leader_epochs.begin(3, log.log_end_offset)
    log.flush()
    assert disk.read_file(FILE) == b"0\n1\n0 0\n"
    log.leader_epochs.begin(4, log.log_end_offset)
    append(log, leader_epoch=4)
    assert disk.read_file(FILE) == b"0\n2\n0 0\n4 1\n"
    killed = open_log(disk.crash(keep_page_cache=True))
    assert killed.log_end_offset == 2


def test_a_batch_is_refused_while_there_is_no_room_for_its_epoch() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, leader_epoch=0)
    log.leader_epochs.begin(3, log.log_end_offset)
    disk.faults.full_at = range(disk.operations + 1, disk.operations + 2)
    with pytest.raises(DiskFullError):
        append(log, leader_epoch=3)
    assert log.log_end_offset == 1
    append(log, leader_epoch=3)
    assert open_log(disk.crash(keep_page_cache=True)).log_end_offset == 2


def test_appends_assign_the_epoch_at_their_first_offset() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, batch_of(3), leader_epoch=1)
    append(log, batch_of(2), leader_epoch=1)
    append(log, batch_of(1), leader_epoch=4)
    assert disk.read_file(FILE) == b"0\n2\n1 0\n4 5\n"


def test_a_follower_takes_the_epochs_from_the_batches() -> None:
    source, target = open_log(sim_disk()), open_log(sim_disk())
    append(source, batch_of(3), leader_epoch=1)
    append(source, batch_of(2), leader_epoch=3)
    target.append_as_follower(source.read(0, 10_000, end_offset=5).data, now_ms=0)
    assert target.leader_epochs.entries == source.leader_epochs.entries == ((1, 0), (3, 3))


def test_nothing_is_written_when_nothing_is_new() -> None:
    epochs = epochs_of((3, 5))
    changes = epochs.changes
    epochs.assign(3, 5)
    epochs.assign(3, 9)
    epochs.assign(-1, 9)
    assert (epochs.changes, epochs.entries) == (changes, ((3, 5),))


def test_an_epoch_without_records_is_replaced_by_the_next_at_the_same_offset() -> None:
    assert epochs_of((0, 0), (1, 7), (2, 7)).entries == ((0, 0), (2, 7))


def test_assigning_drops_what_contradicts_it() -> None:
    assert epochs_of((0, 0), (3, 10), (4, 20), (3, 15)).entries == ((0, 0), (3, 15))
    assert epochs_of((0, 0), (3, 10), (4, 20), (5, 8)).entries == ((0, 0), (5, 8))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (2, EpochEnd(2, 20)),  # known: it ended where the next began
        (4, EpochEnd(4, 30)),
        (7, EpochEnd(7, 44)),  # the latest ends at the end of the log
        (3, EpochEnd(2, 20)),  # KIP-279: between two known ones the older answers, with its end
        (5, EpochEnd(4, 30)),
        (6, EpochEnd(4, 30)),
        (8, UNDEFINED),  # from the future
        (-1, UNDEFINED),  # the asker has no epoch
        (0, EpochEnd(0, 10)),  # older than all that is known: its end is where knowledge begins
        (1, EpochEnd(1, 10)),
    ],
)
def test_where_an_epoch_ended(asked: int, answer: EpochEnd) -> None:
    assert epochs_of((2, 10), (4, 20), (7, 30)).end_offset_for(asked, 44) == answer


def test_without_any_epoch_no_end_is_known() -> None:
    assert epochs_of().end_offset_for(0, 44) == UNDEFINED


def test_the_epoch_of_an_offset() -> None:
    epochs = epochs_of((2, 10), (4, 20))
    found = {offset: epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 1000)}
    assert found == {9: -1, 10: 2, 19: 2, 20: 4, 1000: 4}


@pytest.mark.parametrize(
    ("end", "left"),
    [(31, ((2, 10), (4, 20), (7, 30))), (30, ((2, 10), (4, 20))), (21, ((2, 10), (4, 20))), (20, ((2, 10),)), (10, ())],
)
def test_truncation_from_the_end_forgets_epochs_that_began_there_or_behind(
    end: int, left: tuple[tuple[int, int], ...]
) -> None:
    disk = sim_disk()
    epochs = epochs_of((2, 10), (4, 20), (7, 30), disk=disk)
    epochs.truncate_from_end(end)
    assert epochs.entries == left
    assert epochs.latest == (left[-1][0] if left else -1)
    again = LeaderEpochs(disk, DIRECTORY)
    again.load()
    assert again.entries == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, ((2, 10), (4, 20), (7, 30))),
        (10, ((2, 10), (4, 20), (7, 30))),
        (11, ((2, 11), (4, 20), (7, 30))),
        (20, ((4, 20), (7, 30))),
        (25, ((4, 25), (7, 30))),
        (99, ((7, 99),)),
    ],
)
def test_truncation_from_the_start_keeps_the_epoch_that_holds_the_offset(
    start: int, left: tuple[tuple[int, int], ...]
) -> None:
    disk = sim_disk()
    epochs = epochs_of((2, 10), (4, 20), (7, 30), disk=disk)
    epochs.truncate_from_start(start)
    assert epochs.entries == left
    again = LeaderEpochs(disk, DIRECTORY)
    again.load()
    assert again.entries == left


def test_the_log_truncates_both_ends() -> None:
    log = open_log(sim_disk())
    for epoch in range(4):
        append(log, batch_of(5), leader_epoch=epoch)
    log.truncate_to(12)
    assert list(log.leader_epochs.entries) == [(0, 0), (1, 5)]  # the batch at 10 straddled the offset
    log.maybe_increment_log_start(7)
    assert list(log.leader_epochs.entries) == [(1, 7)]


@pytest.mark.parametrize(
    "data",
    [
        b"1\n1\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\n-1 0\n",
        b"0\n1\na b\n",
        b"0\n2\n1 0\n1 5\n",
        b"0\n2\n2 0\n1 5\n",
        b"0\n2\n1 5\n2 4\n",
    ],
)
def test_a_file_that_is_no_list_of_growing_epochs_is_refused(data: bytes) -> None:
    disk = sim_disk()
    disk.make_dirs(DIRECTORY)
    disk.replace_file(FILE, data)
    with pytest.raises(CorruptFileError):
        LeaderEpochs(disk, DIRECTORY).load()


def test_no_file_and_an_empty_one_tell_nothing() -> None:
    disk = sim_disk()
    disk.make_dirs(DIRECTORY)
    assert not LeaderEpochs(disk, DIRECTORY).load()
    disk.replace_file(FILE, b"")
    assert not LeaderEpochs(disk, DIRECTORY).load()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("data", [None, b"", b"0\n7\nrubbish", b"\xff\xff"])
def test_what_cannot_be_read_is_found_again_in_the_batches(data: bytes | None, clean: bool) -> None:
    disk = sim_disk()
    log = open_log(disk)
    for epoch in (0, 0, 3, 5, 5):
        append(log, batch_of(4), leader_epoch=epoch)
    log.close(0)
    before = disk.read_file(FILE)
    disk.remove(FILE)
    if data is not None:
        disk.replace_file(FILE, data)
    log = open_log(disk, clean=clean)
    assert log.leader_epochs.entries == ((0, 0), (3, 8), (5, 12))
    assert disk.read_file(FILE) == before


def test_epochs_of_a_tail_that_was_lost_are_forgotten() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, batch_of(4), leader_epoch=0)
    size = log.size_bytes
    append(log, batch_of(4), leader_epoch=1)
    log.close(0)
    disk.open(f"{DIRECTORY}/{0:020d}.log").truncate(size + 10)
    log = open_log(disk)
    assert (log.log_end_offset, log.leader_epochs.entries) == (4, ((0, 0),))
