"""Ways to spoil a frame: bits, lengths, counts, ends, order. All of them decided by the random source alone."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

FORGED = (
    b"\x7f\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 6,
    b"\x00\x0f\xff\xff",
    b"\x00",
)


def flip(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def overwrite(data: bytearray, random: Random) -> None:
    lie = random.choice(FORGED)
    place = random.randrange(len(data))
    data[place : place + len(lie)] = lie


def insert(data: bytearray, random: Random) -> None:
    place = random.randrange(len(data) + 1)
    data[place:place] = random.choice((*FORGED, random.randbytes(random.randrange(1, 40))))


def truncate(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def cut_out(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    del data[start : start + random.randrange(1, 20)]


def double(data: bytearray, random: Random) -> None:
    start = random.randrange(len(data))
    piece = data[start : start + random.randrange(1, 200)]
    data[start:start] = piece * random.choice((1, 1, 2, 50))


def other_version(data: bytearray, random: Random) -> None:
    if len(data) >= 4:
        struct.pack_into(">h", data, random.choice((0, 2)), random.choice((-1, 0, 1, 3, 9, 12, 18, 68, 99, 32767)))


WAYS: tuple[Callable[[bytearray, Random], None], ...] = (
    flip,
    flip,
    overwrite,
    overwrite,
    insert,
    truncate,
    cut_out,
    double,
    other_version,
)


def mutated(frame: bytes, random: Random) -> bytes:
    """A frame with its size in front, spoiled; the size mostly fits what came of it."""
    body = bytearray(frame[4:])
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if body:
            random.choice(WAYS)(body, random)
    size = len(body)
    if random.random() < 0.05:
        size = random.choice((-1, 0, size - 1, size + 1, 2**31 - 1, -(2**31), 100 << 20))
    return struct.pack(">i", size) + bytes(body)
