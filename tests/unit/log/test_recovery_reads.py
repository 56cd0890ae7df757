"""How much a start reads: after a clean stop next to nothing, after a kill what lies behind the recovery point."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.log.stopped import META, TOPIC_ID
from tidelog.log.config import LogConfig
from tidelog.log.directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import RecordInput, build_batch, read_header
from tidelog.sim.disk import SimDisk, SimFile

CONFIG = LogConfig(segment_bytes=200_000, retention_ms=-1)
SEGMENTS = 10
BATCH = 2_000


def counted(disk: SimDisk, action: Callable[[], object]) -> dict[str, int]:
    """Do it, and tell how many bytes of each .log file were read for it."""
    counts: dict[str, int] = {}
    reads = {name: getattr(SimFile, name) for name in ("read", "read_now") if hasattr(SimFile, name)}

    def counting(read: Callable[..., bytes]) -> Callable[..., bytes]:
        def wrapper(file: SimFile, position: int, length: int) -> bytes:
            data = read(file, position, length)
            if file.path.endswith(".log"):
                counts[file.path] = counts.get(file.path, 0) + len(data or b"")
            return data

        return wrapper

    for name, read in reads.items():
        setattr(SimFile, name, counting(read))
    try:
        action()
    finally:
        for name, read in reads.items():
            setattr(SimFile, name, read)
    return counts


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        batch = build_batch([RecordInput(None, bytes(BATCH - 80), 1000)])
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=0)


def used() -> tuple[SimDisk, LogDirectory, PartitionLog]:
    """Segments, all but the last tenth of it synced."""
    from tests.unit.log.helpers import sim_disk

    disk = sim_disk()
    directory = LogDirectory.open(disk, "data")
    directory.format(META)
    log = directory.create_partition("t", 0, CONFIG, topic_id=TOPIC_ID, now_ms=0)
    while len(log.segments) < SEGMENTS:
        fill(log, 10)
    log.flush()
    directory.checkpoint({("t", 0): log.log_end_offset})
    fill(log, 20)
    return disk, directory, log


def load(disk: SimDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, "data")
    directory.load(lambda _: CONFIG, 0)
    return directory


def test_a_clean_stop_is_followed_by_no_scan() -> None:
    disk, directory, log = used()
    directory.close(0, high_watermarks={("t", 0): log.log_end_offset})
    counts = counted(disk, lambda: load(disk))
    # The end of the log is found from the last entry of its index on; 4 KiB at a time.
    assert set(counts) <= {log.segments[-1].log.path}
    assert sum(counts.values()) <= 4 * 4096
    assert log.size_bytes > 1_500_000


def test_a_kill_is_followed_by_a_check_behind_the_recovery_point_only() -> None:
    disk, _, log = used()
    recovery_point, end, last = log.recovery_point, log.log_end_offset, log.segments[-1]
    assert last.base_offset < recovery_point < end
    disk = disk.crash(keep_page_cache=True)
    counts = counted(disk, lambda: load(disk))
    checked = counts.pop(last.log.path)
    assert counts == {}
    # Every byte of the segment with the recovery point once, and its headers once more for the producers.
    assert last.size <= checked <= 2.2 * last.size
    assert last.size < 0.15 * log.size_bytes


def test_without_a_recovery_point_all_is_checked() -> None:
    disk, _, log = used()
    disk = disk.crash(keep_page_cache=True)
    disk.remove("data/recovery-point-offset-checkpoint")
    counts = counted(disk, lambda: load(disk))
    assert set(counts) == {segment.log.path for segment in log.segments}
    assert sum(counts.values()) >= log.size_bytes
