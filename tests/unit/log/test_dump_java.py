"""Apache's own DumpLogSegments reads what we write: every batch, both indexes, the snapshots, without one complaint."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.log.helpers import append, batch_of, read_batches
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import read_header
from tidelog.protocol.compression import Codec
from tidelog.runtime.disk import OsDisk
from tools.apache import run_tool, why_not

pytestmark = pytest.mark.java

DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONFIG = LogConfig(segment_bytes=2500, index_interval_bytes=300)
COMPLAINTS = ("mismatch", "non-consecutive", "isvalid: false", "corrupt", "invalid", "exception", "error", "not found")


class Written(NamedTuple):
    directory: Path
    batches: list[bytes]


def opened(root: Path, name: str, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
    path = os.fspath(root / f"{name}-0")
    return PartitionLog.open(OsDisk(), path, name, 0, CONFIG, now_ms=0, clean=clean, recovery_point=recovery_point)


def fill(log: PartitionLog, start: int, count: int) -> None:
    """Every codec, two idempotent producers and some batches without one, times that go back now and then."""
    codecs = list(Codec)
    for number in range(start, start + count):
        timestamp = 1_700_000_000_000 + number * 10 - 500 * (number % 7 == 3)
        batch = batch_of(
            1 + number % 4,
            timestamp=timestamp,
            value=b"%04d" % number * 20,
            codec=codecs[number % len(codecs)],
            producer_id=(-1, 5, 6)[number % 3],
            # An unknown producer may begin anywhere; a new epoch spares the count of what went before.
            epoch=number,
            sequence=0,
        )
        append(log, batch, leader_epoch=number // 25)


def clean_log(root: Path) -> PartitionLog:
    log = opened(root, "clean")
    fill(log, 0, 60)
    return log


def restarted_log(root: Path) -> PartitionLog:
    log = opened(root, "restarted")
    fill(log, 0, 30)
    log.close(0)
    log = opened(root, "restarted", clean=True)
    fill(log, 30, 30)
    return log


def recovered_log(root: Path) -> PartitionLog:
    log = opened(root, "recovered")
    fill(log, 0, 45)
    log.flush()
    log.close_files()
    active = max((root / "recovered-0").glob("*.log"))
    active.write_bytes(active.read_bytes()[:-7])  # a torn batch
    active.with_suffix(".index").write_bytes(bytes(800))  # and what a crash leaves of an index
    log = opened(root, "recovered")
    fill(log, 45, 20)
    return log


def truncated_log(root: Path) -> PartitionLog:
    log = opened(root, "truncated")
    fill(log, 0, 60)
    log.truncate_to(log.log_end_offset // 2)
    fill(log, 60, 30)
    return log


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to read with: {missing}")
    root = tmp_path_factory.mktemp("dump")
    found = []
    for make in (clean_log, restarted_log, recovered_log, truncated_log):
        log = make(root)
        batches = read_batches(log)
        assert len(log.segments) > 3
        log.close(0)
        found.append(Written(Path(log.directory), batches))
    return found


def dump(files: list[Path], *options: str) -> dict[Path, list[str]]:
    """One start of Java for all the files; its lines by file, after a look for complaints."""
    text = without_first_offsets(run_tool(DUMP, *options, "--files", ",".join(map(os.fspath, files))))
    for line in text.splitlines():
        said = re.sub(r"isvalid: true|/\S+", "", line).lower()
        assert not any(complaint in said for complaint in COMPLAINTS), f"{line}\n\n{text[-3000:]}"
    sections: dict[Path, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("Dumping "):
            current = sections.setdefault(Path(line.split()[1]), [])
        elif line.strip():
            current.append(line)
    assert list(sections) == files
    return sections


def without_first_offsets(text: str) -> str:
    """It takes -1 for the offset before any file: a deep look calls the start of every later segment non-consecutive,
    Apache's own too. That one step, from -1 to the offset in the file's name, is left out; any other stays."""
    pattern = r"Non-consecutive offsets in \S*/0*(\d+)\.log\n\s*-1 is followed by \1\n(?!\s+-?\d+ is followed)"
    return re.sub(pattern, "", text)


def files_of(logs: list[Written], suffix: str) -> list[Path]:
    return [path for log in logs for path in sorted(log.directory.glob(f"*{suffix}"))]


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


def batch_lines(lines: list[str]) -> Iterator[dict[str, str]]:
    return (fields(line) for line in lines if line.startswith("baseOffset"))


def test_every_batch_and_every_record(logs: list[Written]) -> None:
    files = files_of(logs, ".log")
    sections = dump(files, "--deep-iteration", "--print-data-log")
    for log in logs:
        mine = [line for path in files if path.parent == log.directory for line in sections[path]]
        theirs = [
            (int(batch["baseOffset"]), int(batch["lastOffset"]), int(batch["count"]), int(batch["producerId"]))
            for batch in batch_lines(mine)
        ]
        headers = [read_header(batch) for batch in log.batches]
        assert theirs == [(h.base_offset, h.last_offset, h.record_count, h.producer_id) for h in headers]
        assert all(batch["isvalid"] == "true" for batch in batch_lines(mine))
        offsets = [int(fields(line)["offset"]) for line in mine if line.startswith("| offset")]
        assert offsets == [offset for h in headers for offset in range(h.base_offset, h.next_offset)]


def test_both_indexes_agree_with_their_logs(logs: list[Written]) -> None:
    offset_files, time_files = files_of(logs, ".index"), files_of(logs, ".timeindex")
    sections = dump([*offset_files, *time_files])
    entries = sum(line.startswith("offset: ") for path in offset_files for line in sections[path])
    times = sum(line.startswith("timestamp: ") for path in time_files for line in sections[path])
    assert entries == sum(path.stat().st_size // 8 for path in offset_files) > 20
    assert times == sum(path.stat().st_size // 12 for path in time_files) > 20


def test_both_indexes_are_sane(logs: list[Written]) -> None:
    files = [*files_of(logs, ".index"), *files_of(logs, ".timeindex")]
    sections = dump(files, "--index-sanity-check")
    for path in files:
        verdict = "passed sanity check." if path.stat().st_size else "is empty."
        assert sections[path] == [f"{path} {verdict}"]


def test_the_snapshots(logs: list[Written]) -> None:
    files = files_of(logs, ".snapshot")
    sections = dump(files)
    assert len(files) > 12
    for log in logs:
        headers = [read_header(batch) for batch in log.batches]
        last = {h.producer_id: h for h in headers if h.producer_id >= 0}
        at_end = sections[log.directory / f"{headers[-1].next_offset:020d}.snapshot"]
        theirs = {int(fields(line)["producerId"]): fields(line) for line in at_end}
        assert sorted(theirs) == sorted(last) == [5, 6]
        for producer_id, header in last.items():
            assert int(theirs[producer_id]["producerEpoch"]) == header.producer_epoch
            assert int(theirs[producer_id]["lastTimestamp"]) == header.max_timestamp


def test_it_does_complain_of_a_wrong_index(logs: list[Written], tmp_path: Path) -> None:
    """Its exit code is 0 even then: the text must be read."""
    source = next(path for path in files_of(logs, ".index") if path.stat().st_size)
    for suffix in (".log", ".timeindex"):
        (tmp_path / source.name).with_suffix(suffix).write_bytes(source.with_suffix(suffix).read_bytes())
    data = bytearray(source.read_bytes())
    data[3] += 1
    (tmp_path / source.name).write_bytes(data)
    with pytest.raises(AssertionError, match="Mismatches"):
        dump([tmp_path / source.name])
