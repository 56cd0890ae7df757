"""Idempotent producers: which batch is a retry, which a gap, who is fenced; and what a snapshot keeps of it."""

from __future__ import annotations

import tracemalloc
from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.log.helpers import DIRECTORY, append, batch_of, open_log, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.errors import CorruptFileError, LogError
from tidelog.log.partition_log import AppendResult, PartitionLog
from tidelog.log.producer_snapshot import SnapshotEntry, decode_snapshot, encode_snapshot
from tidelog.log.producers import ProducerStates
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, RecordInput, build_batch, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.sim.disk import SimDisk

PID = 7
LAST_SEQUENCE = 2**31 - 1
BIG = LogConfig(segment_bytes=100_000)


def new_log(disk: SimDisk | None = None) -> PartitionLog:
    return open_log(disk or sim_disk(), BIG)


def send(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = PID) -> AppendResult:
    return append(log, batch_of(count, producer_id=producer_id, epoch=epoch, sequence=sequence))


def refused(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(LogError) as error:
        send(log, sequence, count, epoch=epoch)
    assert log.log_end_offset == end
    return error.value.error_code


def marker(kind: int = 1, *, epoch: int = 0, coordinator_epoch: int = 4, timestamp: int = 2000) -> bytearray:
    record = RecordInput(pack(">hh", 0, kind), pack(">hi", 0, coordinator_epoch), timestamp)
    return build_batch([record], attributes=CONTROL | TRANSACTIONAL, producer_id=PID, producer_epoch=epoch)


class TestRules:
    def test_sequences_go_on_where_the_last_batch_ended(self) -> None:
        log = new_log()
        assert send(log, 0, 3)[:2] == (0, 2)
        assert send(log, 3, 2)[:2] == (3, 4)
        assert send(log, 5)[:2] == (5, 5)

    def test_a_retry_of_the_last_five_batches_is_answered_with_its_first_offsets(self) -> None:
        log = new_log()
        append(log)
        first = [send(log, number * 2, 2) for number in range(5)]
        for number, result in enumerate(first):
            assert send(log, number * 2, 2) == result._replace(duplicate=True)
        assert first[2].base_offset == 5
        assert log.log_end_offset == 11

    def test_a_retry_tells_the_time_of_the_first_attempt(self) -> None:
        log = new_log()
        append(log, batch_of(producer_id=PID, timestamp=1234))
        again = append(log, batch_of(producer_id=PID, timestamp=9999))
        assert (again.timestamp, again.duplicate) == (1234, True)

    def test_the_sixth_last_batch_is_forgotten(self) -> None:
        log = new_log()
        for sequence in range(6):
            send(log, sequence)
        assert refused(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, 1).duplicate

    def test_a_batch_that_begins_like_an_earlier_one_but_ends_elsewhere_is_no_retry(self) -> None:
        log = new_log()
        send(log, 0, 3)
        assert refused(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refused(log, 1, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_gap_is_out_of_order(self) -> None:
        log = new_log()
        send(log, 0)
        assert refused(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not send(log, 1).duplicate

    def test_an_unknown_producer_may_begin_anywhere(self) -> None:
        assert send(new_log(), 41).base_offset == 0

    def test_an_older_epoch_is_fenced(self) -> None:
        log = new_log()
        send(log, 0, epoch=2)
        assert refused(log, 1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert refused(log, 0, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_newer_epoch_must_begin_at_0(self) -> None:
        log = new_log()
        send(log, 0)
        assert refused(log, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not send(log, 0, epoch=1).duplicate
        assert refused(log, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_batches_of_the_epoch_before_are_no_duplicates(self) -> None:
        log = new_log()
        for sequence in range(3):
            send(log, sequence)
        send(log, 0, epoch=1)
        assert refused(log, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not send(log, 1, epoch=1).duplicate

    def test_producers_do_not_know_each_other(self) -> None:
        log = new_log()
        send(log, 0)
        assert not send(log, 0, producer_id=8).duplicate
        assert send(log, 0).duplicate

    def test_without_a_producer_id_nothing_is_remembered(self) -> None:
        log = new_log()
        append(log)
        append(log)
        assert (log.log_end_offset, len(log.producers)) == (2, 0)

    def test_sequences_wrap_within_a_batch(self) -> None:
        log = new_log()
        send(log, LAST_SEQUENCE - 1, 4)  # the last two of the old round, 0 and 1 of the new one
        assert refused(log, LAST_SEQUENCE) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not send(log, 2).duplicate
        assert send(log, LAST_SEQUENCE - 1, 4).duplicate

    def test_sequences_wrap_between_batches(self) -> None:
        log = new_log()
        send(log, LAST_SEQUENCE)
        assert not send(log, 0).duplicate
        assert send(log, LAST_SEQUENCE).duplicate

    def test_a_follower_remembers_what_the_leader_does(self) -> None:
        leader, follower = new_log(), new_log()
        for sequence in range(3):
            send(leader, sequence)
        follower.append_as_follower(leader.read(0, 10_000, end_offset=3).data, now_ms=0)
        assert send(follower, 1)[:4] == (1, 1, 1000, True)
        assert refused(follower, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_who_was_truncated_may_send_again(self) -> None:
        log = new_log()
        for sequence in range(3):
            send(log, sequence)
        log.truncate_to(1)
        assert not send(log, 1).duplicate
        assert refused(log, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class TestExpiry:
    def test_who_was_silent_for_so_long_is_forgotten(self) -> None:
        log = new_log()
        append(log, batch_of(producer_id=1, timestamp=1000))
        append(log, batch_of(producer_id=2, timestamp=1001))
        assert log.producers.expire(6000, 5000) == 1
        assert log.producers.get(1) is None
        assert log.producers.get(2) is not None
        assert not append(log, batch_of(producer_id=1, timestamp=1000)).duplicate

    def test_an_open_transaction_keeps_its_producer(self) -> None:
        log = new_log()
        append(log, batch_of(producer_id=PID, attributes=TRANSACTIONAL))
        assert log.producers.expire(10**9, 5000) == 0
        append(log, marker())
        assert log.producers.expire(10**9, 5000) == 1


class TestControlBatches:
    def test_a_marker_ends_the_transaction_and_keeps_the_sequences(self) -> None:
        log = new_log()
        append(log, batch_of(2, producer_id=PID, attributes=TRANSACTIONAL))
        state = log.producers.get(PID)
        assert state is not None
        assert state.current_txn_first_offset == 0
        append(log, marker())
        assert (state.current_txn_first_offset, state.coordinator_epoch) == (-1, 4)
        assert not send(log, 2).duplicate
        assert send(log, 0, 2).duplicate

    def test_a_marker_with_a_newer_epoch_lets_the_sequences_begin_again(self) -> None:
        log = new_log()
        append(log, batch_of(2, producer_id=PID, attributes=TRANSACTIONAL))
        append(log, marker(epoch=1))
        assert refused(log, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refused(log, 2, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert not send(log, 0, epoch=1).duplicate

    @pytest.mark.parametrize(
        ("key", "value"),
        [(pack(">hh", 0, 2), bytes(19)), (b"", b""), (b"\0", b"\0"), (None, None), (pack(">hh", 0, 1), None)],
    )
    def test_other_control_batches_are_kept_and_change_nothing(self, key: bytes | None, value: bytes | None) -> None:
        disk = sim_disk()
        log = new_log(disk)
        send(log, 0)
        record = RecordInput(key, value, 5000)
        append(log, build_batch([record], attributes=CONTROL, producer_id=PID, producer_epoch=0))
        append(log, build_batch([record], attributes=CONTROL))
        assert send(log, 0).duplicate
        log.close(0)
        log = open_log(disk, BIG)
        assert (log.log_end_offset, send(log, 0).duplicate) == (3, True)


def snapshot(disk: SimDisk, offset: int) -> bytes | None:
    return disk.read_file(f"{DIRECTORY}/{offset:020d}.snapshot")


def whole(*entries: bytes) -> bytes:
    body = pack(">i", len(entries)) + b"".join(entries)
    return pack(">hI", 1, crc32c(body)) + body


class TestSnapshots:
    def test_one_without_producers(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        append(log)
        log.close(0)
        assert snapshot(disk, 1) == bytes.fromhex("000148674bc700000000")

    def test_none_at_offset_0(self) -> None:
        disk = sim_disk()
        new_log(disk).close(0)
        assert [name for name in disk.list_dir(DIRECTORY) if name.endswith(".snapshot")] == []

    def test_the_last_batch_of_each_producer_is_in_it(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        append(log)
        append(log, batch_of(2, producer_id=PID, sequence=10, epoch=3, timestamp=500))
        append(log, batch_of(4, producer_id=PID, sequence=12, epoch=3, timestamp=600))
        append(log, batch_of(1, producer_id=9, sequence=0, timestamp=700, attributes=TRANSACTIONAL))
        log.close(0)
        assert snapshot(disk, 8) == whole(
            pack(">qhiqiqiq", PID, 3, 15, 6, 3, 603, -1, -1), pack(">qhiqiqiq", 9, 0, 0, 7, 0, 700, -1, 7)
        )

    def test_a_marker_that_bumps_the_epoch(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        append(log, batch_of(2, producer_id=PID, attributes=TRANSACTIONAL))
        append(log, marker(epoch=1))
        log.close(0)
        assert snapshot(disk, 3) == whole(pack(">qhiqiqiq", PID, 1, -1, -1, 0, 2000, 4, -1))
        assert not send(open_log(disk, BIG, clean=True), 0, epoch=1).duplicate

    def test_a_roll_writes_one_named_by_the_new_base(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        send(log, 0, 3)
        log.roll(0)
        data = snapshot(disk, 3)
        assert data is not None
        assert [entry.last_sequence for entry in decode_snapshot(data)] == [2]

    def test_a_second_close_leaves_it_as_it_is(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        send(log, 0)
        log.close(0)
        before = snapshot(disk, 1)
        open_log(disk, BIG, clean=True).close(0)
        assert snapshot(disk, 1) == before

    def test_after_a_clean_start_the_last_batch_is_known_and_the_four_before_are_not(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        for sequence in range(3):
            send(log, sequence)
        log.close(0)
        log = open_log(disk, BIG, clean=True)
        assert send(log, 2)[:2] == (2, 2)
        assert refused(log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not send(log, 3).duplicate

    def test_a_batch_across_the_wrap_survives_the_snapshot(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        send(log, LAST_SEQUENCE - 1, 4)
        log.close(0)
        log = open_log(disk, BIG, clean=True)
        assert send(log, LAST_SEQUENCE - 1, 4).duplicate
        assert not send(log, 2).duplicate

    @pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
    @pytest.mark.parametrize("position", [1, 2, 9, 30, -1])
    def test_a_damaged_one_is_rebuilt_from_the_log(self, position: int, clean: bool) -> None:
        disk = sim_disk()
        log = new_log(disk)
        for sequence in range(4):
            send(log, sequence)
        log.close(0)
        before = snapshot(disk, 4)
        assert before is not None
        damaged = bytearray(before)
        damaged[position] ^= 1
        disk.replace_file(f"{DIRECTORY}/{4:020d}.snapshot", bytes(damaged))
        log = open_log(disk, BIG, clean=clean)
        # From the log all of the last five are known, from the snapshot only the last.
        assert send(log, 0).duplicate
        log.close(0)
        assert snapshot(disk, 4) == before

    def test_one_from_before_the_tail_is_completed_by_the_batches_behind_it(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        send(log, 0)
        log.roll(0)
        send(log, 1)
        log.flush()
        log = open_log(disk.crash(keep_page_cache=False), BIG)
        assert send(log, 1).duplicate
        assert send(log, 0).duplicate

    def test_one_behind_the_end_of_the_log_is_dropped(self) -> None:
        disk = sim_disk()
        log = new_log(disk)
        send(log, 0)
        size = log.size_bytes
        send(log, 1)
        log.close(0)
        disk.open(f"{DIRECTORY}/{0:020d}.log").truncate(size)
        log = open_log(disk, BIG)
        assert snapshot(disk, 2) is None
        assert not send(log, 1).duplicate

    def test_short_or_miscounted_ones_are_refused(self) -> None:
        entry = pack(">qhiqiqiq", 1, 0, 0, 0, 0, 0, -1, -1)
        body = pack(">i", 2) + entry
        for data in (b"", b"\0\1", whole(entry)[:-1], pack(">hI", 1, crc32c(body)) + body):
            with pytest.raises(CorruptFileError):
                decode_snapshot(data)

    @given(
        st.lists(
            st.builds(
                SnapshotEntry,
                st.integers(0, 2**63 - 1),
                st.integers(0, 2**15 - 1),
                st.integers(-1, 2**31 - 1),
                st.integers(-1, 2**63 - 1),
                st.integers(0, 2**31 - 1),
                st.integers(-1, 2**63 - 1),
                st.integers(-1, 2**31 - 1),
                st.integers(-1, 2**63 - 1),
            ),
            max_size=5,
        )
    )
    def test_round_trip(self, entries: list[SnapshotEntry]) -> None:
        assert decode_snapshot(encode_snapshot(entries)) == entries


class TestManyProducers:
    def test_a_hundred_thousand_come_and_go(self) -> None:
        """What each costs, and that they are there again after a stop: 46 bytes of the snapshot each."""
        count = 100_000
        disk = sim_disk()
        log = new_log(disk)
        states = log.producers
        header = read_header(batch_of(1, producer_id=0))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            states.appended(header._replace(producer_id=number, max_timestamp=number), number, number)
            if number == 10_000:
                assert tracemalloc.get_traced_memory()[0] - before < 10_000 * 600
                tracemalloc.stop()
        path = states.take_snapshot(count)
        assert path is not None
        assert len(disk.read_file(path) or b"") == 10 + 46 * count
        again = ProducerStates(disk, DIRECTORY)
        again.note_snapshots([count])
        assert again.load(count) == count
        assert len(again) == count
        assert again.expire(count // 2 + 1000, 1000) == count // 2 + 1

    def test_more_than_the_bound_take_the_place_of_silent_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidelog.log.producers.PRODUCERS_MAX", 10)
        log = new_log()
        for producer_id in range(10):
            send(log, 0, producer_id=producer_id)
        send(log, 1, producer_id=0)
        append(log, batch_of(1, producer_id=1, sequence=1, attributes=TRANSACTIONAL))
        for producer_id in range(100, 108):
            send(log, 0, producer_id=producer_id)
        assert [producer_id for producer_id, _ in log.producers.items()] == [0, 1, *range(100, 108)]
        assert send(log, 1, producer_id=0).duplicate
        send(log, 77, producer_id=5)
        assert len(log.producers) == 10, "who was forgotten begins where it likes, as in Kafka"

    def test_all_in_transactions_are_bounded_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidelog.log.producers.PRODUCERS_MAX", 3)
        log = new_log()
        for producer_id in range(3):
            append(log, batch_of(1, producer_id=producer_id, attributes=TRANSACTIONAL))
        with pytest.raises(LogError) as caught:
            append(log, batch_of(1, producer_id=3, attributes=TRANSACTIONAL))
        assert caught.value.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
        append(log, batch_of(1, producer_id=4))
        assert list(log.producers.open_since) == [0, 1, 2]
