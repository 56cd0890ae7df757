"""Apache's DumpLogSegments reads a log that we have cleaned: batches, indexes, aborted transactions, no complaint but
for the offsets that are not there any more."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.log.cleaning.helpers import COMPACT, clean, everything, headers, put, roll
from tests.unit.log.helpers import mark
from tests.unit.log.test_dump_java import COMPLAINTS, DUMP, fields
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.compression import Codec
from tidelog.runtime.disk import OsDisk
from tools.apache import run_tool, why_not

pytestmark = pytest.mark.java
CONFIG = replace(COMPACT, segment_bytes=2500, index_interval_bytes=300)
GAPS = r"Non-consecutive offsets in \S+\n(\s*-?\d+ is followed by \d+\n)+"


def write(log: PartitionLog, first: int) -> None:
    codecs = list(Codec)
    for number in range(first, first + 60):
        records = [(b"key %d" % (number * 7 % 13), None if number % 11 == 10 else b"%04d" % number * 15)] * 2
        codec = codecs[number % len(codecs)]
        timestamp = 1_700_000_000_000 + 10 * number
        match number % 3:
            case 0:
                put(log, *records, timestamp=timestamp, codec=codec)
            case 1:
                put(log, *records, timestamp=timestamp, codec=codec, producer_id=100 + number, epoch=0)
            case _:
                put(log, *records, timestamp=timestamp, codec=codec, producer_id=5, epoch=number, transactional=True)
                mark(log, 5, commit=number % 2 == 0, epoch=number, timestamp=timestamp)


def test_apache_reads_what_was_cleaned(tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to read with: {missing}")
    disk = OsDisk()
    log = PartitionLog.open(disk, os.fspath(tmp_path / "t-0"), "t", 0, CONFIG, now_ms=0, clean=False)
    for number in range(3):
        write(log, 60 * number)
        roll(log)
        assert clean(disk, log, now_ms=1_700_000_001_000 + 70 * number) is not None
    write(log, 180)
    batches, seen = headers(log), everything(log)
    assert any(header.record_count == 0 for header in batches)
    log.close(0)
    files = [
        path
        for suffix in ("log", "index", "timeindex", "txnindex", "snapshot")
        for path in sorted((tmp_path / "t-0").glob(f"*.{suffix}"))
    ]
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    text = run_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(map(os.fspath, files)))
    rest = re.sub(GAPS, "", text)
    for line in rest.splitlines():
        said = re.sub(r"isvalid: true|/\S+", "", line).lower()
        assert not any(complaint in said for complaint in COMPLAINTS), f"{line}\n\n{text[-3000:]}"
    told = [fields(line) for line in rest.splitlines() if line.startswith("baseOffset")]
    assert [(int(one["baseOffset"]), int(one["lastOffset"]), int(one["count"])) for one in told] == [
        (header.base_offset, header.last_offset, header.record_count) for header in batches
    ]
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) (?!.*endTxnMarker)", rest, re.MULTILINE)]
    assert offsets == [one.offset for one in seen]
