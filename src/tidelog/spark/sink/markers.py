"""The markers of transactions among raw batches: how a producer's transaction ended, as the log itself tells it."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import BatchHeader, iter_records

_KEY: Final = Struct(">hh")
_ABORT, _COMMIT = 0, 1


def marker_commits(batch: Buffer, header: BatchHeader) -> bool | None:
    """True for a commit, False for an abort, None for a batch that is no marker."""
    if not header.is_control:
        return None
    (record,) = iter_records(batch, header)
    if record.key is None or len(record.key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    return {_ABORT: False, _COMMIT: True}.get(kind)
