"""Answers that differ in a few numbers: the generic encoder's bytes, cut where the numbers stand.

So a hand-made answer cannot drift from the codec's: the codec has made all of it but the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct


class AmbiguousMark(Exception):
    """A peer's name or id contains the bytes of a mark, by chance or on purpose: there is no template for it."""


def cut(encoded: bytes, marks: Sequence[tuple[str, int]]) -> tuple[Struct, tuple[bytes, ...]]:
    """The numbers, each with its letter of `struct`, are found in this order, and each only once. The result packs
    piece, number, piece, number and so on to the last piece."""
    layout = ">"
    pieces = []
    start = 0
    for letter, mark in marks:
        needle = Struct(">" + letter).pack(mark)
        if encoded.count(needle) != 1:
            raise AmbiguousMark
        at = encoded.index(needle, start)
        pieces.append(encoded[start:at])
        layout += f"{at - start}s{letter}"
        start = at + len(needle)
    pieces.append(encoded[start:])
    return Struct(f"{layout}{len(encoded) - start}s"), tuple(pieces)
