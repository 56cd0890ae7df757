"""Batches as another leader wrote them: looked at before any of them is written."""

from __future__ import annotations

from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Buffer
from tidelog.log.errors import LogError
from tidelog.protocol.batch import BatchHeader, crc_is_valid, iter_headers
from tidelog.protocol.errors import ErrorCode


def check_batches(batches: Buffer, end_offset: int) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch; LogError when one is damaged or cannot follow the end of the log."""
    try:
        found = list(iter_headers(batches))
    except ProtocolError as error:
        raise LogError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    view = memoryview(batches)
    for position, header in found:
        if header.base_offset < end_offset or header.last_offset_delta < 0:
            raise LogError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"a batch at {header.base_offset} cannot follow the end {end_offset}"
            )
        if not crc_is_valid(view[position : position + header.size], header):
            raise LogError(ErrorCode.CORRUPT_MESSAGE, f"the batch at {header.base_offset} is damaged")
        end_offset = header.next_offset
    return found
