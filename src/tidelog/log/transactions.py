"""Reading the markers of transactions in a log. (The index of aborted ones comes with transactions themselves.)"""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import BatchHeader, iter_records

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
ABORT: Final = 0
COMMIT: Final = 1


def coordinator_epoch_of(batch: Buffer, header: BatchHeader) -> int | None:
    """The epoch in a transaction's marker; None for a control batch of another kind, or one that makes no sense."""
    try:
        record = next(iter_records(batch, header), None)
    except ProtocolError:
        return None
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < _KEY.size or len(record.value) < _VALUE.size:
        return None
    if _KEY.unpack_from(record.key)[1] not in (ABORT, COMMIT):
        return None
    epoch: int = _VALUE.unpack_from(record.value)[1]
    return epoch
