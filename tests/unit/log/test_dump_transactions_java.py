"""Apache's DumpLogSegments reads our transactions: markers, the index of aborted ones, who is in one in a snapshot."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.unit.log.helpers import append, batch_of, mark
from tests.unit.log.test_dump_java import dump, fields
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import TRANSACTIONAL
from tidelog.runtime.disk import OsDisk
from tools.apache import why_not

pytestmark = pytest.mark.java


def opened(path: Path, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
    config = LogConfig(segment_bytes=1500, index_interval_bytes=300)
    directory = os.fspath(path)
    return PartitionLog.open(OsDisk(), directory, "t", 0, config, now_ms=0, clean=clean, recovery_point=recovery_point)


def send(log: PartitionLog, producer_id: int, *, epoch: int = 0) -> None:
    state = log.producers.get(producer_id)
    sequence = state.batches[-1].last_sequence + 1 if state is not None and state.batches else 0
    batch = batch_of(2, producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL)
    append(log, batch)


def write(log: PartitionLog) -> None:
    for number in range(12):
        send(log, 7)
        send(log, 8)
        mark(log, 7, commit=number % 2 == 0, coordinator_epoch=number)
        append(log)
        mark(log, 8, commit=number % 3 == 0, coordinator_epoch=number)


@pytest.mark.parametrize("killed", [False, True])
def test_apache_reads_our_transactions(tmp_path: Path, killed: bool) -> None:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to read with: {missing}")
    log = opened(tmp_path / "t-0")
    write(log)
    if killed:
        log.flush()
        log.close_files()
        log = opened(tmp_path / "t-0", recovery_point=10)
        write(log)
    send(log, 9, epoch=3)
    mark(log, 8, commit=True, epoch=1)  # a newer epoch: the sequences begin again
    aborted = [
        entry for segment in log.segments if segment.aborted for entry in segment.aborted._entries.entries_from(0)
    ]
    log.close(0)
    files = [path for suffix in ("log", "txnindex") for path in sorted((tmp_path / "t-0").glob(f"*.{suffix}"))]
    last = tmp_path / "t-0" / f"{log.log_end_offset:020d}.snapshot"
    sections = dump([*files, last], "--deep-iteration", "--print-data-log")

    lines = [line for path in files if path.suffix == ".log" for line in sections[path]]
    markers = [re.search(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", line) for line in lines]
    told = [(found[1], int(found[2])) for found in markers if found]
    rounds = [("COMMIT" if n % k == 0 else "ABORT", n) for n in range(12) for k in (2, 3)]
    assert told == [*rounds * (2 if killed else 1), ("COMMIT", 0)]

    entries = [fields(line) for path in files if path.suffix == ".txnindex" for line in sections[path]]
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    assert [tuple(int(entry[name]) for name in names) for entry in entries] == aborted
    assert len(aborted) == (28 if killed else 14)

    producers = {int(found["producerId"]): line for line in sections[last] if (found := fields(line))}
    assert sorted(producers) == [7, 8, 9]
    assert re.search(rf"currentTxnFirstOffset: \S*\b{log.log_end_offset - 3}\b", producers[9])
    assert fields(producers[8])["producerEpoch"] == "1" and "empty" in producers[8]
