"""What can be wrong with batches and records, as numbers that native code can return and as words.

The numbers are negative: a position that is negative is a fault. numba keeps the values that it has compiled and does
not look at this file again: after a change here, touch the kernels.
"""

from __future__ import annotations

from typing import Final

from tidelog.kernel.errors import ProtocolError

RUNS_OVER: Final = -1
VARINT_TOO_LONG: Final = -2
BAD_SIZE: Final = -3
FIELD_RUNS_OVER: Final = -4
BAD_HEADER_COUNT: Final = -5
NO_NAME: Final = -6
DOES_NOT_FIT: Final = -7
LEFT_OVER: Final = -8
BAD_OFFSET: Final = -9
BAD_TIMESTAMP: Final = -10
BATCH_TOO_SMALL: Final = -11
BAD_MAGIC: Final = -12
BAD_COUNT: Final = -13
BAD_LAST_OFFSET: Final = -14
TOO_MANY_HEADERS: Final = -15

TEXTS: Final = {
    RUNS_OVER: "a record runs over the end of its batch",
    VARINT_TOO_LONG: "a varint has more than 64 bits",
    BAD_SIZE: "a size in a record is negative",
    FIELD_RUNS_OVER: "a field runs over the end of its record",
    BAD_HEADER_COUNT: "a record claims a number of headers that it has no room for",
    NO_NAME: "a record header has no name",
    DOES_NOT_FIT: "the length of a record does not fit its fields",
    LEFT_OVER: "bytes are left over after the last record of a batch",
    BAD_OFFSET: "a record's offset is outside its batch",
    BAD_TIMESTAMP: "a record has a timestamp of more than 64 bits",
    BATCH_TOO_SMALL: "a batch is smaller than its own header",
    BAD_MAGIC: "a batch has a format other than 2",
    BAD_COUNT: "a batch claims more records than it has room for",
    BAD_LAST_OFFSET: "the last offset of a batch is before its first, or has more than 64 bits",
    TOO_MANY_HEADERS: "the record headers of compressed batches take more than the limit",
}


def fault(number: int, where: str) -> ProtocolError:
    return ProtocolError(f"{TEXTS[number]} ({where})")
