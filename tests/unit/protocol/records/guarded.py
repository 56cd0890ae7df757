"""A process of its own that decodes spoiled logs beside pages that may not be read. Prints how many were decoded and
how many refused; ends by a signal when native code reads too far."""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
import sys
from contextlib import suppress

from tests.unit.protocol.records.batches import with_crc
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.records import decode, encode

PAGE = mmap.PAGESIZE
ROOM = 16 * PAGE
ROUNDS = 1500


def guarded_room() -> tuple[mmap.mmap, memoryview]:
    """Memory with a page before and a page behind it that may not be touched."""
    pages = mmap.mmap(-1, ROOM + 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (address, address + PAGE + ROOM):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    return pages, memoryview(pages)[PAGE : PAGE + ROOM]


def spoiled(chance: random.Random) -> bytes:
    inputs = [
        RecordInput(
            chance.choice([None, b"", b"key", bytes(70)]),
            chance.choice([None, b"", b"value", bytes(3000)]),
            chance.randrange(1 << 40),
            [("name", chance.choice([None, b"content"]))] * chance.randrange(3),
        )
        for _ in range(chance.randrange(1, 5))
    ]
    batch = build_batch(inputs)
    for _ in range(chance.randrange(4)):
        near = chance.choice([len(batch), min(len(batch), 100)])
        batch[chance.randrange(near)] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
    if chance.random() < 0.3:
        del batch[chance.randrange(61, len(batch)) :]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    return with_crc(batch)


def main(side: str) -> None:
    _pages, room = guarded_room()
    chance = random.Random(6)
    decoded = refused = 0
    for _ in range(ROUNDS):
        log = b"".join(spoiled(chance) for _ in range(chance.randrange(1, 3)))
        place = memoryview(log)
        if side != "none":
            begin = 0 if side == "front" else ROOM - len(log)
            place = room[begin : begin + len(log)]
            place[:] = log
        try:
            columns = decode(place, twin="native", check_crc=False)
        except ProtocolError:
            refused += 1
            continue
        decoded += 1
        columns.to_arrow(control=True).validate(full=True)
        with suppress(ValueError):  # control records, or offsets that do not ascend
            encode(columns, batch_bytes=200)
    print(decoded, refused)


if __name__ == "__main__":
    main(sys.argv[1])
