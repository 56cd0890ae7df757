"""What a reader of committed records is told about transactions that Apache Kafka left in a log."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.log.transactions import ABORTED_ENTRY, Aborted, PastTransactions, load_transactions
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch, read_header
from tidelog.sim.disk import SimDisk

NEVER = 2**63 - 1


def batches(first: int, end: int) -> bytes:
    """One batch for each offset."""
    return b"".join(
        bytes(build_batch([RecordInput(None, b"v", 1)], base_offset=offset)) for offset in range(first, end)
    )


# Producer 7 aborted 2-6 while producer 8, which began at 4, was open until 9; producer 9 aborted 12-13.
PAST = PastTransactions([Aborted(8, 4, 9, 10), Aborted(7, 2, 6, 4), Aborted(9, 12, 13, 14)], NEVER)


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
    first: int, end: int, expected: list[tuple[int, int]]
) -> None:
    assert PAST.aborted_in(batches(first, end), first) == expected


def test_a_batch_that_begins_before_the_offset_is_read_from_the_offset_on() -> None:
    batch = build_batch([RecordInput(None, b"v", 1)] * 5, base_offset=5)
    assert PAST.aborted_in(bytes(batch), 7) == [(8, 4)]


def new_disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_dirs("p-0")
    return disk


def test_the_index_is_read_up_to_the_end_of_the_log() -> None:
    disk = new_disk()
    entries = [(0, 7, 2, 6, 4), (0, 9, 12, 13, 14), (0, 3, 20, 25, 26)]
    data = b"".join(ABORTED_ENTRY.pack(*entry) for entry in entries)
    disk.replace_file("p-0/00000000000000000000.txnindex", data + b"torn")
    past = load_transactions(disk, "p-0", [0], 25, [-1])
    assert past is not None and past.first_open_offset == NEVER
    assert past.aborted_in(batches(0, 30), 0) == [(7, 2), (9, 12)]


def test_a_log_without_transactions_has_nothing_to_ask() -> None:
    assert load_transactions(new_disk(), "p-0", [], 25, [-1, -1]) is None


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_is_found_again_at_the_next_start(clean: bool) -> None:
    disk = new_disk()
    log = PartitionLog.open(disk, "p-0", "p", 0, LogConfig(), now_ms=1, clean=False)
    for producer_id in (-1, 5):
        batch = build_batch(
            [RecordInput(None, b"v", 1)] * 3,
            attributes=TRANSACTIONAL if producer_id >= 0 else 0,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
        )
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=1)
    assert log.transactions is None
    log.close(1)
    again = PartitionLog.open(disk, "p-0", "p", 0, LogConfig(), now_ms=1, clean=clean)
    assert again.transactions is not None and again.transactions.first_open_offset == 3
