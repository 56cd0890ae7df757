"""Transactions of one log: the bytes of their markers, the last stable offset, and who is told what was aborted."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.log.helpers import DIRECTORY, TINY, append, batch_of, mark, open_log, sim_disk, verify
from tidelog.log.errors import LogError
from tidelog.log.partition_log import PartitionLog
from tidelog.log.transactions import Marker, Transactions, end_offset_of, marker_batch, read_ending
from tidelog.log.txn_index import ABORTED_ENTRY
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, RecordInput, build_batch, iter_records, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.disk import SimDisk

NEVER = 2**63 - 1


def send(log: PartitionLog, producer_id: int, count: int = 1, *, epoch: int = 0) -> int:
    """A transactional batch with the sequence that is due; its first offset."""
    state = log.producers.get(producer_id)
    sequence = state.batches[-1].last_sequence + 1 if state is not None and state.batches else 0
    batch = batch_of(count, producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL)
    return append(log, batch).base_offset


def unstable(log: PartitionLog, high_watermark: int | None = None) -> int | None:
    """Where the first transaction begins that a reader must not pass."""
    if log.transactions is None:
        return None
    end = log.log_end_offset if high_watermark is None else high_watermark
    first = log.transactions.first_unstable_offset(end)
    return None if first == NEVER else first


def index_file(disk: SimDisk, base_offset: int = 0) -> list[tuple[int, ...]]:
    data = disk.read_file(f"{DIRECTORY}/{base_offset:020d}.txnindex")
    return [] if data is None else list(ABORTED_ENTRY.iter_unpack(data))


class TestMarkers:
    def test_a_marker_has_the_bytes_that_kafka_writes(self) -> None:
        batch = marker_batch(Marker(7, 3, 11, True, 1), 1234)
        header = read_header(batch)
        assert header.attributes == TRANSACTIONAL | CONTROL
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
        assert (header.record_count, header.base_timestamp, header.max_timestamp) == (1, 1234, 1234)
        (record,) = iter_records(batch)
        assert record.key == bytes.fromhex("00000001")
        assert record.value == bytes.fromhex("0000" + "0000000b")

    def test_an_abort_differs_in_its_key(self) -> None:
        batch = marker_batch(Marker(7, 3, 11, False, 1), 1234)
        (record,) = iter_records(batch)
        assert record.key == bytes.fromhex("00000000")
        ending = read_ending(batch, read_header(batch))
        assert ending is not None and (ending.committed, ending.coordinator_epoch) == (False, 11)


class TestStable:
    def test_a_log_without_transactions_has_nothing_to_ask(self) -> None:
        log = open_log(sim_disk())
        append(log, batch_of(producer_id=1))
        assert log.transactions is None

    def test_the_first_open_transaction_holds_readers_back(self) -> None:
        log = open_log(sim_disk())
        append(log)
        send(log, 7)
        send(log, 8)
        assert unstable(log) == 1
        mark(log, 7, commit=True)
        assert unstable(log) == 2
        mark(log, 8, commit=False)
        assert unstable(log) is None

    def test_a_marker_counts_when_it_is_committed(self) -> None:
        log = open_log(sim_disk())
        send(log, 7, 3)
        marker = mark(log, 7, commit=True)
        assert unstable(log, marker.base_offset) == 0
        assert unstable(log, marker.base_offset + 1) is None

    def test_one_that_ended_earlier_but_began_later_adds_nothing(self) -> None:
        log = open_log(sim_disk())
        send(log, 7)
        send(log, 8)
        mark(log, 8, commit=True)  # offset 2
        mark(log, 7, commit=True)  # offset 3
        assert [unstable(log, hw) for hw in (2, 3, 4)] == [0, 0, None]

    def test_one_that_began_and_ended_between_is_kept(self) -> None:
        log = open_log(sim_disk())
        send(log, 7)
        mark(log, 7, commit=True)  # 1
        send(log, 8)
        mark(log, 8, commit=True)  # 3
        assert [unstable(log, hw) for hw in (1, 2, 3, 4)] == [0, 2, 2, None]

    def test_a_marker_without_data_ends_nothing(self) -> None:
        log = open_log(sim_disk())
        send(log, 7)
        mark(log, 9, commit=False)
        assert unstable(log) == 0
        assert log.aborted_between(0, 10) == []

    def test_what_is_kept_of_ended_transactions_does_not_grow_while_it_is_asked_for(self) -> None:
        transactions = Transactions({})
        for offset in range(0, 2000, 2):
            transactions.ended(offset, offset + 1)
            transactions.first_unstable_offset(offset + 2)
        assert not transactions._ended


class TestAborted:
    def overlapping(self) -> PartitionLog:
        """Producer 7 aborts 2-6 while 8, which began at 4, is open until 9; producer 9 aborts 12-13."""
        log = open_log(sim_disk())
        append(log, batch_of(2))
        send(log, 7, 2)
        send(log, 8, 2)
        mark(log, 7, commit=False)  # 6
        send(log, 8, 2)
        mark(log, 8, commit=False)  # 9
        append(log, batch_of(2))
        send(log, 9)
        mark(log, 9, commit=False)  # 13
        append(log, batch_of(6))
        return log

    @pytest.mark.parametrize(
        ("first", "end", "expected"),
        [
            (0, 2, []),
            (0, 3, [(7, 2)]),
            (0, 5, [(7, 2), (8, 4)]),
            (6, 8, [(7, 2), (8, 4)]),
            (7, 8, [(8, 4)]),
            (10, 12, []),
            (10, 20, [(9, 12)]),
            (14, 20, []),
            (9, 9, []),
        ],
    )
    def test_a_reader_hears_of_each_that_reaches_into_what_it_reads(
        self, first: int, end: int, expected: list[tuple[int, int]]
    ) -> None:
        assert self.overlapping().aborted_between(first, end) == expected

    def test_the_file_is_kafkas(self) -> None:
        disk = sim_disk()
        log = open_log(disk)
        append(log, batch_of(2))
        send(log, 7, 2)
        send(log, 8)
        mark(log, 7, commit=False)  # 5, while 8 is open since 4
        mark(log, 8, commit=False)  # 6
        assert index_file(disk) == []
        log.close(0)
        assert index_file(disk) == [(0, 7, 2, 5, 4), (0, 8, 4, 6, 7)]

    def test_there_is_no_file_where_nothing_was_aborted(self) -> None:
        disk = sim_disk()
        log = open_log(disk)
        send(log, 7)
        mark(log, 7, commit=True)
        log.close(0)
        assert not disk.exists(f"{DIRECTORY}/{0:020d}.txnindex")

    def test_the_entry_is_in_the_segment_of_the_marker(self) -> None:
        disk = sim_disk()
        log = open_log(disk)
        send(log, 7)
        log.roll(0)
        mark(log, 7, commit=False)
        log.roll(0)
        assert index_file(disk, 0) == []
        assert index_file(disk, 1) == [(0, 7, 0, 1, 2)]
        assert log.aborted_between(0, 1) == [(7, 0)]

    def test_many_are_found_in_a_file_that_is_searched(self) -> None:
        log = open_log(sim_disk(), TINY.__class__())
        for _ in range(1500):
            send(log, 7)
            mark(log, 7, commit=False)
        assert log.aborted_between(1001, 1004) == [(7, 1000), (7, 1002)]
        assert log.aborted_between(2998, 4000) == [(7, 2998)]
        assert len(log.aborted_between(0, 3000)) == 1500

    def test_end_offset_of_what_was_read(self) -> None:
        batches = b"".join(
            bytes(build_batch([RecordInput(None, b"v", 1)] * 3, base_offset=offset)) for offset in (5, 8, 11)
        )
        assert end_offset_of(batches, 5) == 14
        assert end_offset_of(batches[:-1], 5) == 11
        assert end_offset_of(b"", 5) == 5
        assert end_offset_of(batches[:40], 5) == 5


class TestStarting:
    @pytest.mark.parametrize("clean", [True, False])
    def test_open_and_aborted_ones_are_found_again(self, clean: bool) -> None:
        disk = sim_disk()
        log = open_log(disk)
        append(log, batch_of(3))
        send(log, 5)
        send(log, 6)
        mark(log, 6, commit=False)
        log.close(0)
        again = open_log(disk, clean=clean, recovery_point=log.recovery_point)
        assert unstable(again) == 3
        assert again.aborted_between(0, 9) == [(6, 4)]

    def test_a_crash_loses_no_entry_although_a_snapshot_of_a_clean_stop_is_behind_it(self) -> None:
        disk = sim_disk()
        log = open_log(disk)
        send(log, 5)
        mark(log, 5, commit=False)
        log.close(0)
        log = open_log(disk, clean=True, recovery_point=log.recovery_point)
        append(log)
        log.flush()
        disk = disk.crash(keep_page_cache=True)
        disk.remove(f"{DIRECTORY}/{0:020d}.txnindex")
        again = open_log(disk, recovery_point=log.recovery_point)
        assert again.aborted_between(0, 9) == [(5, 0)]

    @pytest.mark.parametrize(
        "damage",
        [
            b"torn",
            ABORTED_ENTRY.pack(1, 5, 0, 1, 2),
            ABORTED_ENTRY.pack(0, 5, 0, 40, 2),
            ABORTED_ENTRY.pack(0, 5, 3, 1, 2),
        ],
    )
    def test_a_file_that_cannot_be_is_made_again(self, damage: bytes) -> None:
        disk = sim_disk()
        log = open_log(disk)
        send(log, 5)
        mark(log, 5, commit=False)
        log.close(0)
        disk.replace_file(f"{DIRECTORY}/{0:020d}.txnindex", damage)
        again = open_log(disk, clean=True, recovery_point=log.recovery_point)
        assert again.aborted_between(0, 9) == [(5, 0)]
        again.close(0)
        assert index_file(disk) == [(0, 5, 0, 1, 2)]

    def test_truncation_opens_again_what_a_marker_had_ended(self) -> None:
        log = open_log(sim_disk())
        send(log, 5)
        send(log, 6)
        mark(log, 5, commit=False)  # 2
        mark(log, 6, commit=False)  # 3
        log.truncate_to(3)
        assert unstable(log) == 1
        assert log.aborted_between(0, 9) == [(5, 0)]
        log.truncate_to(2)
        assert unstable(log) == 0
        assert log.aborted_between(0, 9) == []

    def test_retention_takes_the_file_with_its_segment(self) -> None:
        disk = sim_disk()
        log = open_log(disk)
        send(log, 5)
        mark(log, 5, commit=False)
        log.roll(0)
        append(log)
        log.flush()
        log.delete_old_segments(10**10, log.log_end_offset)
        log.remove_due_files(10**12)
        assert not [name for name in disk.list_dir(DIRECTORY) if "txnindex" in name]

    def test_a_round_after_a_roll_makes_the_file_durable(self) -> None:
        disk = sim_disk()
        log = open_log(disk)
        send(log, 5)
        mark(log, 5, commit=False)
        log.roll(0)
        append(log)
        log.flush()
        cut = disk.crash(keep_page_cache=False)
        assert index_file(cut) == [(0, 5, 0, 1, 2)]


class TestProducers:
    def refused(self, log: PartitionLog, batch: bytearray) -> ErrorCode:
        with pytest.raises(LogError) as caught:
            log.append(batch, read_header(batch), leader_epoch=0, now_ms=0)
        return caught.value.error_code

    def batch(self, producer_id: int = 5, *, epoch: int = 0, sequence: int = 0, attributes: int = 0x10) -> bytearray:
        return batch_of(producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=attributes)

    def test_what_was_not_verified_is_refused(self) -> None:
        log = open_log(sim_disk())
        assert self.refused(log, self.batch()) is ErrorCode.INVALID_TXN_STATE
        log.producers.verifications.ask(5, 0, 0, adds=False)
        assert self.refused(log, self.batch()) is ErrorCode.INVALID_TXN_STATE
        log.producers.verifications.answer(5, 0, ok=False)
        assert self.refused(log, self.batch()) is ErrorCode.INVALID_TXN_STATE
        assert log.log_end_offset == 0

    def test_a_verification_is_for_one_epoch_and_one_transaction(self) -> None:
        log = open_log(sim_disk())
        verify(log, 5, 1)
        assert self.refused(log, self.batch(epoch=0)) is ErrorCode.INVALID_TXN_STATE
        batch = self.batch(epoch=1)
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=0)
        mark(log, 5, commit=True, epoch=1)
        assert self.refused(log, self.batch(epoch=1, sequence=1)) is ErrorCode.INVALID_TXN_STATE

    def test_a_marker_between_question_and_answer_ends_the_verification(self) -> None:
        log = open_log(sim_disk())
        log.producers.verifications.ask(5, 0, 0, adds=False)
        mark(log, 5, commit=False)
        log.producers.verifications.answer(5, 0, ok=True)
        assert self.refused(log, self.batch()) is ErrorCode.INVALID_TXN_STATE
        assert not len(log.producers.verifications)

    def test_a_plain_batch_of_a_producer_in_a_transaction_is_refused(self) -> None:
        log = open_log(sim_disk())
        send(log, 5)
        assert self.refused(log, self.batch(sequence=1, attributes=0)) is ErrorCode.INVALID_TXN_STATE
        mark(log, 5, commit=True)
        assert append(log, self.batch(sequence=1, attributes=0)).base_offset == 2

    def test_a_retry_within_the_transaction_is_known_by_its_sequence(self) -> None:
        log = open_log(sim_disk())
        send(log, 5)
        batch = self.batch()
        assert log.append(batch, read_header(batch), leader_epoch=0, now_ms=0).duplicate

    @pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
    @pytest.mark.parametrize("is_next_open", [False, True], ids=["before", "within"])
    def test_the_sequence_of_a_transaction_that_is_over_is_refused(self, commit: bool, is_next_open: bool) -> None:
        """librdkafka gives the number of a message that it aborted unanswered to the next one: no retry."""
        log = open_log(sim_disk())
        send(log, 5)
        mark(log, 5, commit=commit)
        if is_next_open:
            verify(log, 5, 0, sequence=1)
            append(log, self.batch(sequence=1))
        end_offset = log.log_end_offset
        assert self.refused(log, self.batch()) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.log_end_offset == end_offset

    def test_one_that_was_refused_before_must_come_first(self) -> None:
        """Two are on their way; the coordinator could not be asked for the first, and says yes to the second."""
        log = open_log(sim_disk())
        verifications = log.producers.verifications
        verifications.ask(5, 0, 0, adds=False)
        verifications.answer(5, 0, ok=False)
        verify(log, 5, 0, sequence=1)
        assert self.refused(log, self.batch(sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        verify(log, 5, 0, sequence=0)
        assert append(log, self.batch(sequence=0)).base_offset == 0

    def test_a_late_retry_that_asks_first_does_not_stand_in_the_way_of_the_next(self) -> None:
        """Of the transaction before, that is: its batch is known here, so none is missing before the next one."""
        log = open_log(sim_disk())
        send(log, 5)
        mark(log, 5, commit=True)
        log.producers.verifications.ask(5, 0, 0, adds=False)
        log.producers.verifications.answer(5, 0, ok=False)
        log.producers.verifications.ask(5, 0, 1, adds=False)
        log.producers.verifications.answer(5, 0, ok=True)
        batch = self.batch(sequence=1)
        assert log.append(batch, read_header(batch), leader_epoch=0, now_ms=0).base_offset == 2

    def test_what_is_asked_for_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidelog.log.verification.ASKED_MAX", 3)
        log = open_log(sim_disk())
        for producer_id in range(9):
            verify(log, producer_id, 0)
        assert len(log.producers.verifications) == 3

    def test_version_2_begins_at_sequence_0(self) -> None:
        log = open_log(sim_disk())
        verify(log, 5, 0, adds=True)
        assert self.refused(log, self.batch(sequence=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        verify(log, 6, 0, adds=False)
        assert append(log, self.batch(6, sequence=3)).base_offset == 0

    def test_an_older_epoch_is_fenced(self) -> None:
        log = open_log(sim_disk())
        send(log, 5, epoch=1)
        verify(log, 5, 0)
        assert self.refused(log, self.batch(sequence=1)) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_what_a_coordinator_writes_has_no_sequences_but_an_epoch(self) -> None:
        log = open_log(sim_disk())

        def write(epoch: int) -> int:
            batch = self.batch(epoch=epoch)
            header = read_header(batch)
            return log.append(batch, header, leader_epoch=0, now_ms=0, from_coordinator=True).base_offset

        with pytest.raises(LogError) as caught:
            write(1)
        assert caught.value.error_code is ErrorCode.INVALID_TXN_STATE
        verify(log, 5, 1)
        assert [write(1), write(1)] == [0, 1]
        with pytest.raises(LogError) as caught:
            write(0)
        assert caught.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


class TestCheckMarker:
    def check(self, log: PartitionLog, marker: Marker) -> bool | ErrorCode:
        try:
            return log.producers.check_marker(marker)
        except LogError as error:
            return error.error_code

    def test_version_1_may_have_the_epoch_of_the_data(self) -> None:
        log = open_log(sim_disk())
        send(log, 5, epoch=2)
        assert self.check(log, Marker(5, 1, 0, True, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.check(log, Marker(5, 2, 0, True, 1)) is False
        assert self.check(log, Marker(5, 3, 0, True, 1)) is False

    def test_version_2_must_have_a_newer_one(self) -> None:
        log = open_log(sim_disk())
        send(log, 5, epoch=2)
        assert self.check(log, Marker(5, 2, 0, True, 2)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.check(log, Marker(5, 3, 0, True, 2)) is False

    def test_version_2_knows_one_that_was_written(self) -> None:
        log = open_log(sim_disk())
        send(log, 5, epoch=2)
        mark(log, 5, commit=True, epoch=3)
        assert self.check(log, Marker(5, 3, 0, True, 2)) is True
        assert self.check(log, Marker(5, 2, 0, True, 2)) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_an_older_coordinator_is_fenced(self) -> None:
        log = open_log(sim_disk())
        mark(log, 5, commit=True, coordinator_epoch=4)
        assert self.check(log, Marker(5, 0, 3, True, 1)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert self.check(log, Marker(5, 0, 4, True, 1)) is False

    def test_an_unknown_producer_is_not_held_against_anything(self) -> None:
        assert self.check(open_log(sim_disk()), Marker(5, 0, 0, False, 2)) is False


def test_a_follower_keeps_the_same_account() -> None:
    leader, follower = open_log(sim_disk()), open_log(sim_disk(), TINY)
    random = Random(3)
    is_open: set[int] = set()
    for _ in range(200):
        producer_id = random.randrange(4)
        if producer_id in is_open and random.random() < 0.4:
            mark(leader, producer_id, commit=random.random() < 0.5)
            is_open.discard(producer_id)
        else:
            send(leader, producer_id)
            is_open.add(producer_id)
        if random.random() < 0.3:
            offset, end = follower.log_end_offset, leader.log_end_offset
            data = leader.read(offset, 10_000, end_offset=end).data
            follower.append_as_follower(data, now_ms=0)
            if follower.log_end_offset == end:
                assert unstable(follower) == unstable(leader)
                assert follower.aborted_between(0, end) == leader.aborted_between(0, end)
