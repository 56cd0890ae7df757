"""Raw batches to columns, in portions that fit a processor's cache and use the same memory again and again: a chunk of
well compressed batches may be fifty times as large when it is decompressed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import CODEC_MASK
from tidelog.protocol.records import Batches, Columns, Scratch, decode_scanned, scan
from tidelog.protocol.records.twins import chosen_twin, module

PORTION_BYTES: Final = 4 << 20
"""About so large is a portion when it is decompressed, and the Arrow batch that is made of it."""


class Decoder:
    """Of one task. A portion's columns are good until the next one is asked for."""

    def __init__(self, what: str) -> None:
        """`what` is read, for errors."""
        self._what = what
        self._scratch = Scratch()
        self._growth: float | None = None
        """How many bytes one of a compressed batch becomes, by the last portion; the first batch is one by itself."""

    def portions(self, data: memoryview, batches: Batches | None = None) -> Iterator[tuple[Columns, int]]:
        """(columns, number of their first batch). `batches`: the headers, if the CRCs were checked already."""
        try:
            found = scan(data) if batches is None else batches
        except ProtocolError as error:
            raise ProtocolError(f"{self._what}: {error}") from error
        ends = np.cumsum(np.asarray(found.batch_length))
        is_packed = bool((np.asarray(found.attributes) & CODEC_MASK).any())
        first = 0
        while first < found.count:
            before = int(ends[first - 1]) if first else 0
            room = self._room(int(ends[-1]) - before, is_packed)
            end = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
            for columns, number in self._decoded(data, found, first, end):
                if is_packed:
                    size = int(ends[number + columns.batches.count - 1]) - (int(ends[number - 1]) if number else 0)
                    self._growth = max(1.0, len(columns.data) / size)
                yield columns, number
            first = end

    def _room(self, left: int, is_packed: bool) -> float:
        """How many bytes of what is left of a chunk the next portion takes: all are to be of about the same size."""
        growth = self._growth if is_packed else 1.0
        return 0 if growth is None else left / max(1, round(left * growth / PORTION_BYTES))

    def _decoded(self, data: memoryview, batches: Batches, first: int, end: int) -> Iterator[tuple[Columns, int]]:
        """Those from one number to before another: in halves where they grow too large for the decoder's limit."""
        part = batches
        if (first, end) != (0, batches.count):
            part = module("decode", chosen_twin()).select(batches, range(first, end))
        try:
            columns = decode_scanned(data, part, scratch=self._scratch)
        except ProtocolError as error:
            if end - first < 2:
                raise ProtocolError(f"{self._what}: {error}") from error
            middle = (first + end) // 2
            yield from self._decoded(data, batches, first, middle)
            yield from self._decoded(data, batches, middle, end)
        else:
            yield columns, first
