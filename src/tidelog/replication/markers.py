"""Ends a transaction in one partition: the marker is checked, appended, and answered for when it is committed."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.kernel.errors import DiskError
from tidelog.log.errors import LogError
from tidelog.log.transactions import Marker, marker_batch
from tidelog.protocol.batch import read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.replication.partition import Partition


def write_marker(partition: Partition, marker: Marker, now_ms: int, done: Callable[[ErrorCode], None]) -> None:
    """`done` is called once, perhaps at once: with NONE when the marker is committed, else with the reason. One that
    was written before is not written again, as far as that can be told."""
    try:
        if not partition.log.producers.check_marker(marker):
            batch = marker_batch(marker, now_ms)
            partition.append(batch, read_header(batch), now_ms)
            if partition.when_marked is not None:
                partition.when_marked(marker)
            # Asked here as well, so that what is kept of ended transactions does not grow where nobody reads.
            partition.last_stable_offset  # noqa: B018
    except LogError as error:
        done(error.error_code)
    except DiskError:
        done(ErrorCode.KAFKA_STORAGE_ERROR)
    else:
        partition.when_committed(partition.log.log_end_offset, done)
