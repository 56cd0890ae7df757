"""A data directory of several partitions on the simulated disk, ways to hurt it, and what verify says of it."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.log.helpers import batch_of, sim_disk
from tidelog.log.config import LogConfig
from tidelog.log.directory import LogDirectory
from tidelog.log.meta_properties import MetaProperties
from tidelog.log.partition_log import PartitionLog
from tidelog.log.verify.directory import DirectoryCheck
from tidelog.log.verify.report import Finding, Report
from tidelog.protocol.batch import read_header
from tidelog.protocol.compression import Codec
from tidelog.sim.disk import SimDisk

META = MetaProperties("cluster", 1, bytes(range(16)))
TOPIC_ID = bytes(range(1, 17))
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150, file_delete_delay_ms=1000, retention_ms=-1)
BATCHES = 30


def write(log: PartitionLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        codec = list(Codec)[number % 5]
        batch = batch_of(
            3, timestamp=1000 + 10 * number, value=b"value %d" % number, producer_id=7, sequence=3 * number, codec=codec
        )
        log.append(batch, read_header(batch), leader_epoch=number // 10, now_ms=0)


def worked(*, synced: int = BATCHES) -> tuple[SimDisk, LogDirectory]:
    """A directory in use: t-0 with some segments, of which so many batches are synced, and e-0 without a record."""
    disk = sim_disk()
    directory = LogDirectory.open(disk, "data")
    directory.format(META)
    log = directory.create_partition("t", 0, CONFIG, topic_id=TOPIC_ID, now_ms=0)
    directory.create_partition("e", 0, CONFIG, topic_id=bytes(range(2, 18)), now_ms=0)
    write(log, 0, synced)
    for each in directory.partitions.values():
        each.flush()
    directory.checkpoint({("t", 0): log.log_end_offset, ("e", 0): 0})
    write(log, synced, BATCHES - synced)
    return disk, directory


def stopped() -> SimDisk:
    disk, directory = worked()
    directory.close(0, high_watermarks={("t", 0): BATCHES * 3, ("e", 0): 0}, broker_epoch=5)
    return disk


def killed(synced: int = 15) -> SimDisk:
    return worked(synced=synced)[0].crash(keep_page_cache=True)


def change(disk: SimDisk, path: str, how: Callable[[bytearray], object]) -> None:
    """Rewrite a file as damage would, behind everybody's back."""
    content = disk.read_file(path)
    assert content is not None, f"no {path}"
    data = bytearray(content)
    how(data)
    file = disk.open(path)
    file.truncate(0)
    file.append((bytes(data),))
    file.close()


def flip(at: int, bit: int = 0) -> Callable[[bytearray], object]:
    def how(data: bytearray) -> None:
        data[at] ^= 1 << bit

    return how


def cut(count: int) -> Callable[[bytearray], object]:
    def how(data: bytearray) -> None:
        del data[-count:]

    return how


def verify(disk: SimDisk, path: str = "data", *, deep: bool = False) -> tuple[list[Finding], Report]:
    findings: list[Finding] = []
    report = Report(findings.append)
    DirectoryCheck(disk, path, report, deep=deep).run()
    return findings, report


def damages(disk: SimDisk, *, deep: bool = False) -> list[Finding]:
    return [finding for finding in verify(disk, deep=deep)[0] if finding.severity == "damage"]


def notes(disk: SimDisk) -> list[Finding]:
    return [finding for finding in verify(disk)[0] if finding.severity == "note"]
