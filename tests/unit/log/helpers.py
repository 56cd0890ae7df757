"""What the tests of the log share: batches, a log on a simulated disk, and reading all of it back."""

from __future__ import annotations

from random import Random

from tidelog.kernel.ports import Disk
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import AppendResult, PartitionLog
from tidelog.log.transactions import Marker, marker_batch
from tidelog.protocol.batch import RecordInput, build_batch, iter_headers, read_header
from tidelog.protocol.compression import Codec
from tidelog.sim.disk import SimDisk

TINY = LogConfig(segment_bytes=600, index_interval_bytes=150, segment_index_bytes=1200, file_delete_delay_ms=1000)
DIRECTORY = "data/t-0"


def sim_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(Random(seed))
    disk.make_dirs("data")
    disk.sync_dir("")
    return disk


def open_log(
    disk: Disk, config: LogConfig = TINY, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0
) -> PartitionLog:
    return PartitionLog.open(
        disk,
        DIRECTORY,
        "t",
        0,
        config,
        now_ms=0,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def batch_of(
    count: int = 1,
    *,
    timestamp: int = 1000,
    value: bytes = b"value",
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
) -> bytearray:
    records = [RecordInput(b"key", value, timestamp + number) for number in range(count)]
    if producer_id < 0:
        return build_batch(records, codec=codec, attributes=attributes)
    return build_batch(
        records,
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def append(
    log: PartitionLog, batch: bytearray | None = None, *, leader_epoch: int = 0, now_ms: int = 0
) -> AppendResult:
    """As a leader, which has asked the coordinator about a batch that is transactional."""
    batch = batch if batch is not None else batch_of()
    header = read_header(batch)
    if header.is_transactional and not header.is_control:
        verify(log, header.producer_id, header.producer_epoch)
    return log.append(batch, header, leader_epoch=leader_epoch, now_ms=now_ms)


def verify(log: PartitionLog, producer_id: int, epoch: int, *, adds: bool = False, sequence: int = 2**31 - 1) -> None:
    log.producers.verifications.ask(producer_id, epoch, sequence, adds=adds)
    log.producers.verifications.answer(producer_id, epoch, ok=True)


def mark(
    log: PartitionLog,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    timestamp: int = 1000,
) -> AppendResult:
    """End the transaction of the producer."""
    batch = marker_batch(Marker(producer_id, epoch, coordinator_epoch, commit, 1), timestamp)
    return log.append(batch, read_header(batch), leader_epoch=leader_epoch, now_ms=timestamp)


def read_batches(log: PartitionLog) -> list[bytes]:
    """Every batch of the log, through read() alone."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1000, end_offset=log.log_end_offset).data
        if not data:  # a gap before an empty active segment: what expired came back in part
            break
        for position, header in iter_headers(data):
            batches.append(data[position : position + header.size])
            offset = header.next_offset
    return batches


def tree(disk: Disk, path: str) -> dict[str, bytes | None]:
    """Every file under the path with its content."""
    if not disk.is_dir(path):
        return {path: disk.read_file(path)}
    found: dict[str, bytes | None] = {}
    for name in disk.list_dir(path):
        found |= tree(disk, f"{path}/{name}")
    return found
